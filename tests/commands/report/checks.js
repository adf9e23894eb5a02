"use strict";
// Looks at a page as a reader sees it.  `checks.overflows()` and `checks.contrasts()` name what is wrong.
var checks = {
  unfold() {
    document.querySelectorAll("details").forEach((one) => (one.open = true));
    document.querySelectorAll(".wide").forEach((one) => (one.style.contentVisibility = "visible"));
  },

  // Elements that scroll or reach beyond the screen, and labels in pictures that are clipped, tiny or covered.
  overflows() {
    const found = [];
    const name = (one) => `${one.tagName}.${one.getAttribute("class")} ${one.textContent.slice(0, 40)}`;
    for (const one of document.body.querySelectorAll("*")) {
      if (one.closest("code, pre, script, svg") || !one.clientWidth) continue;
      if (one.scrollWidth > one.clientWidth + 1) found.push(`scrolls: ${name(one)}`);
      const box = one.getBoundingClientRect();
      if (box.right > innerWidth + 1 || box.left < -1) found.push(`outside: ${name(one)}`);
    }
    for (const svg of document.querySelectorAll("svg")) {
      const frame = svg.getBoundingClientRect();
      const shown = [...svg.querySelectorAll("text")].filter((one) => one.getClientRects().length);
      const boxes = shown.map((one) => [one, one.getBoundingClientRect()]);
      for (const [one, box] of boxes) {
        const isInside = box.left >= frame.left - 0.5 && box.right <= frame.right + 0.5 && box.top >= frame.top - 1;
        if (!isInside) found.push(`clipped: ${name(one)}`);
        if (box.height < 9) found.push(`too small: ${name(one)}`);
        const covers = (its) =>
          box.left < its.right - 1 && its.left < box.right - 1 && box.top < its.bottom - 4 && its.top < box.bottom - 4;
        if (boxes.some(([other, its]) => other !== one && covers(its))) found.push(`covered: ${name(one)}`);
      }
    }
    return found;
  },

  // The number of texts, and those whose contrast is below 4.5.  WCAG 2: relative luminance, contrast ratio.
  contrasts() {
    const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
    const isClear = (colour) => colour === "none" || parse(colour)[3] === 0;
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = (colour) => {
      const [red, green, blue] = parse(colour).map((one) => linear(one / 255));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const ground = (one) => {
      for (; one; one = one.parentElement) {
        const colour = getComputedStyle(one).backgroundColor;
        if (!isClear(colour)) return colour;
      }
      return "rgb(255, 255, 255)";
    };
    const behind = (text) => {
      const box = text.getBoundingClientRect();
      const meets = ({ left, right, top, bottom }) =>
        left < box.right - 1 && right > box.left + 1 && top < box.bottom - 2 && bottom > box.top + 2;
      const shapes = [...text.ownerSVGElement.querySelectorAll("rect")];
      const under = shapes.filter((one) => meets(one.getBoundingClientRect()));
      const fills = under.map((one) => getComputedStyle(one).fill).filter((one) => !isClear(one));
      return fills.length ? fills : [ground(text)];
    };
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let count = 0;
    for (let node; (node = walker.nextNode()); ) {
      const one = node.parentElement;
      if (!node.textContent.trim() || one.closest("script, title") || !one.getClientRects().length) continue;
      count += 1;
      const style = getComputedStyle(one);
      const [ink, grounds] = one.tagName === "text" ? [style.fill, behind(one)] : [style.color, [ground(one)]];
      for (const under of grounds) {
        const [dark, bright] = [light(ink), light(under)].sort((a, b) => a - b);
        const contrast = ((bright + 0.05) / (dark + 0.05)).toFixed(2);
        if (contrast < 4.5) found.add(`${contrast}: ${one.tagName}.${one.getAttribute("class")} ${ink} on ${under}`);
      }
    }
    return [count, [...found]];
  },
};
