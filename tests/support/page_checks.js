// What a reader cannot read on a page: text beyond its box or the screen, and text that its background nearly hides.
// The value is a list of texts, empty for a good page.
(() => {
  const LEAST = 4.5; // https://www.w3.org/TR/WCAG22/#contrast-minimum
  const found = [];
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  // Any colour that CSS can name, as [red, green, blue, opacity].
  const cache = new Map();
  const channels = (colour) => {
    if (!cache.has(colour)) {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = colour;
      paint.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = paint.getImageData(0, 0, 1, 1).data;
      cache.set(colour, [red, green, blue, alpha / 255]);
    }
    return cache.get(colour);
  };
  const over = (front, opacity, back) => back.map((channel, i) => front[i] * opacity + channel * (1 - opacity));
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((channel) => {
      const share = channel / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };

  // The colours behind an element, from the page up, and how much of the element's own is seen.  Most texts share them.
  const known = new Map([[null, [[255, 255, 255], 1]]]);
  const surroundings = (element) => {
    if (!known.has(element)) {
      const [behind, share] = surroundings(element.parentElement);
      const style = getComputedStyle(element);
      const opacity = share * Number(style.opacity);
      const colour = channels(style.backgroundColor);
      known.set(element, [over(colour, colour[3] * opacity, behind), opacity]);
    }
    return known.get(element);
  };

  const about = (element, text) => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") || ""}"> ${text.trim().slice(0, 60)}`;
  const isHidden = (element) => !element.checkVisibility({ opacityProperty: true, visibilityProperty: true });

  const checkContrast = (element, text) => {
    const style = getComputedStyle(element);
    const inPicture = element instanceof SVGElement;
    const colour = channels(inPicture ? style.fill : style.color);
    const [back, opacity] = surroundings(element);
    const own = colour[3] * opacity * (inPicture ? Number(style.fillOpacity) : 1);
    const ratio = contrast(over(colour, own, back), back);
    if (ratio < LEAST) found.push(`contrast ${ratio.toFixed(2)}: ${about(element, text)}`);
  };

  // Spaces at the end of a line may hang over the edge; words may not.
  const checkPlace = (node, element) => {
    const range = document.createRange();
    const isOutside = () => [...range.getClientRects()].some((box) => box.width > 1 && (box.left < -1 || box.right > innerWidth + 1));
    range.selectNodeContents(node);
    if (!isOutside()) return;
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (isOutside()) {
        found.push(`outside of the screen: ${about(element, node.data)}`);
        return;
      }
    }
  };

  const within = document.querySelectorAll(".md-header, .md-tabs, .md-content, .md-footer, .md-sidebar");
  for (const part of within) {
    const place = getComputedStyle(part);
    if (isHidden(part) || place.transform !== "none" && part.matches(".md-sidebar")) continue;
    const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || isHidden(element) || element.closest("title, script, style")) continue;
      const box = element.getBoundingClientRect();
      if (!box.width || !box.height) continue;
      checkContrast(element, node.data);
      if (part.matches(".md-content, .md-header, .md-tabs, .md-footer")) checkPlace(node, element);
    }
  }
  for (const element of document.querySelectorAll(".md-content *, .md-tabs, .md-tabs *, .md-ellipsis")) {
    const cuts = getComputedStyle(element).overflowX !== "visible";
    if (cuts && !isHidden(element) && element.scrollWidth > element.clientWidth + 1) {
      found.push(`wider than its box: ${about(element, element.textContent)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the screen");
  return [...new Set(found)];
})()
