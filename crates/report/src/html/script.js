"use strict";
// Notes on hover, and curves that hide on a click on their name. The page is complete without this.
const note = document.getElementById("note");
document.addEventListener("pointermove", (event) => {
  const marked = event.target.closest("[data-note]");
  note.style.display = marked ? "block" : "none";
  if (!marked) return;
  note.textContent = marked.dataset.note;
  const x = Math.min(event.clientX + 14, window.innerWidth - note.offsetWidth - 8);
  note.style.left = `${Math.max(x, 4)}px`;
  note.style.top = `${event.clientY + 16}px`;
});
document.addEventListener("click", (event) => {
  const name = event.target.closest(".toggle");
  if (name) name.closest(".curve").classList.toggle("off");
});
