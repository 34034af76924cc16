const view = document.getElementById("view");
const stage = document.querySelector(".stage");
const sheet = document.querySelector(".sheet");
const chips = [...document.querySelectorAll("button[data-show]")];
const handles = [...document.querySelectorAll("[data-show]")];
let kept = chips[0].dataset.show;
function show(file) {
  const chip = chips.find((c) => c.dataset.show === file);
  view.src = file;
  view.alt = chip.textContent;
  for (const h of handles) h.classList.toggle("on", h.dataset.show === file);
  for (const c of chips) c.setAttribute("aria-pressed", String(c === chip));
}
for (const h of handles) {
  h.addEventListener("mouseenter", () => show(h.dataset.show));
  h.addEventListener("mouseleave", () => show(kept));
  h.addEventListener("click", () => show(kept = h.dataset.show));
}
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const now = chips.findIndex((c) => c.dataset.show === kept);
  show(kept = chips[(now + step + chips.length) % chips.length].dataset.show);
});
const fitted = sheet.style.maxWidth;
for (const b of document.querySelectorAll("[data-size]")) {
  b.addEventListener("click", () => {
    const factor = Number(b.dataset.size);
    sheet.style.maxWidth = factor ? "none" : fitted;
    sheet.style.width = factor ? factor * sheet.dataset.width + "px" : "";
    sheet.classList.toggle("magnified", factor > 1);
    for (const o of document.querySelectorAll("[data-size]"))
      o.setAttribute("aria-pressed", String(o === b));
  });
}
show(kept);
// Fetched ahead, so that switching is at once.
for (const c of chips) new Image().src = c.dataset.show;
