"use strict";
// Notes on what the pointer is over or what has the focus, entries of legends that hide what they name, and folded parts that open
// where an address leads into them. The page is complete without this.
const note = document.getElementById("note");
const show = (marked, x, y) => {
  note.style.display = marked ? "block" : "none";
  if (!marked) return;
  note.textContent = marked.dataset.note;
  note.style.left = `${Math.max(Math.min(x + 14, window.innerWidth - note.offsetWidth - 8), 4)}px`;
  note.style.top = `${y + 16}px`;
};
document.addEventListener("pointermove", (event) => show(event.target.closest("[data-note]"), event.clientX, event.clientY));
document.addEventListener("focusin", (event) => {
  const marked = event.target.closest("[data-note]");
  const place = marked?.getBoundingClientRect();
  show(marked, place?.right, place?.bottom);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-entry]");
  if (!button) return;
  const hide = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", String(!hide));
  const entry = button.dataset.entry;
  button.closest("[data-legend]").querySelectorAll(`g[data-entry="${entry}"]`).forEach((drawn) => drawn.classList.toggle("off", hide));
});
// Opens whatever is folded around an element, and the element itself.
const reveal = (element) => {
  for (let part = element?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
};
const follow = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) return;
  reveal(target);
  target.scrollIntoView();
};
window.addEventListener("hashchange", follow);
follow();
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
