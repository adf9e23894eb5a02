"use strict";
// Sorting, filters, larger pictures, unfolding on paper, and the data as a file.  The page is whole without any of it.
(() => {
  const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
  const value = (row, at) => row.cells[at].dataset.n ?? row.cells[at].textContent;

  const sort = (table, head, at) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const compare = (a, b) => {
      const [x, y] = [value(a, at), value(b, at)];
      const order = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y);
      return down ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  };

  const filter = (table, words, status) => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    status.textContent = wanted.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  };

  for (const table of document.querySelectorAll("table.rows")) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = make("button", head.textContent, { type: "button" });
      button.addEventListener("click", () => sort(table, head, at));
      head.replaceChildren(button);
    });
    if (table.tBodies[0].rows.length > 8) {
      const status = make("span", "", { role: "status" });
      const input = make("input", "", { type: "search" });
      input.addEventListener("input", () => filter(table, input.value, status));
      const label = make("label", "Filter ");
      label.append(input, " ", status);
      table.parentNode.before(label);
    }
  }

  for (const figure of document.querySelectorAll("figure.zoom")) {
    let scale = 1;
    const zoom = (by) => {
      scale = Math.min(Math.max(scale * by, 1), 64);
      figure.querySelector("svg").style.width = `${100 * scale}%`;
    };
    for (const [text, by, says] of [["+", 2, "Larger"], ["−", 0.5, "Smaller"]]) {
      const button = make("button", text, { type: "button", title: says });
      button.setAttribute("aria-label", says);
      button.addEventListener("click", () => zoom(by));
      figure.querySelector("figcaption").append(button);
    }
  }

  // On paper nothing is folded.
  const folded = [];
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not([open])")) {
      folded.push(one);
      one.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const one of folded.splice(0)) one.open = false;
  });

  const save = make("button", "Save the data as JSON", { type: "button" });
  save.addEventListener("click", () => {
    const link = make("a", "", { download: "klog-report.json" });
    link.href = URL.createObjectURL(new Blob([document.getElementById("data").textContent]));
    link.click();
  });
  document.querySelector("footer").append(save);
})();
