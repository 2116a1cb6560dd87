// The breakdowns of slow requests: a mark in a scatter opens the one that it stands for.
const SVG = document.querySelector("svg").namespaceURI;
const make = (name, attributes, text) => {
  const element = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
// One bar for the whole time, cut at each interval. Short ones are drawn as wide as can be seen, and numbered where there is
// room; the list beneath has all of them in words, so that nothing rests on colour.
const timeline = (parts) => {
  const width = 380;
  const total = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  const svg = make("svg:svg", { viewBox: `0 0 ${width} 50`, "aria-hidden": "true" });
  parts.forEach(([from, length, kind, words], index) => {
    const x = (from / total) * width;
    const wide = Math.max((length / total) * width, 1.5);
    svg.append(make("svg:rect", { class: `part ${kind}`, x, y: 4, width: wide, height: 24, "data-note": `${length} ms: ${words}` }));
    if (wide > 16) svg.append(make("svg:text", { class: "number", x: x + wide / 2, y: 20, "text-anchor": "middle" }, index + 1));
  });
  svg.append(make("svg:text", { class: "tick", x: 0, y: 45 }, "0 ms: due"));
  svg.append(make("svg:text", { class: "tick", x: width, y: 45, "text-anchor": "end" }, `${Math.round(total * 10) / 10} ms: complete`));
  return svg;
};
const breakdown = (data) => {
  const list = make("ol", {});
  for (const [from, length, kind, words] of data.parts) {
    const item = make("li", kind === data.main ? { class: "main" } : {});
    const swatch = make("svg:svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" });
    swatch.append(make("svg:rect", { class: kind, width: 12, height: 12 }));
    const digits = length < 1 ? 3 : 1;
    item.append(swatch, ` ${length.toFixed(digits)} ms: ${words} (from ${from.toFixed(1)} ms on)`);
    list.append(item);
  }
  return [make("h4", {}, data.title), make("p", {}, data.place), timeline(data.parts), list];
};
// The address then leads to this breakdown: it can be sent to somebody who has the page.
const all = [...document.querySelectorAll(".mark")];
const open = (mark) => {
  history.replaceState(null, "", `#breakdown-${all.indexOf(mark)}`);
  const figure = mark.closest("figure");
  const breakdowns = figure.querySelector(".breakdowns");
  breakdowns.data ??= JSON.parse(breakdowns.querySelector("script").textContent);
  figure.querySelectorAll(".mark.open").forEach((other) => other.classList.remove("open"));
  mark.classList.add("open");
  const panel = breakdowns.querySelector(".breakdown");
  panel.replaceChildren(...breakdown(breakdowns.data[mark.dataset.breakdown]));
  panel.hidden = false;
};
const close = (figure) => {
  figure.querySelectorAll(".mark.open").forEach((mark) => mark.classList.remove("open"));
  figure.querySelector(".breakdown").hidden = true;
};
const linked = all[/^#breakdown-(\d+)$/.exec(location.hash)?.[1]];
if (linked) {
  open(linked);
  reveal(linked);
  linked.closest("figure").scrollIntoView();
}
document.addEventListener("click", (event) => {
  const mark = event.target.closest(".mark");
  if (mark) open(mark);
});
document.addEventListener("keydown", (event) => {
  const mark = event.target.closest?.(".mark");
  if (!mark) return;
  const marks = [...mark.parentNode.children];
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) {
    const next = marks[(marks.indexOf(mark) + step + marks.length) % marks.length];
    mark.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
    open(next);
  } else if (event.key === "Enter" || event.key === " ") open(mark);
  else if (event.key === "Escape") close(mark.closest("figure"));
  else return;
  event.preventDefault();
});
