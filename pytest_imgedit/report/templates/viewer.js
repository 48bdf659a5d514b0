"use strict";
// The viewer: two images of a pair over each other, with a slider, as a flicker, or side by side.
const viewer = Object.fromEntries(
  ["viewer", "viewed", "asked", "stage", "under", "over", "left", "right", "mode", "slide", "legend", "reduced"].map((id) => [id, document.getElementById(id)]));
const FLICKER_MS = 700;
let viewing = null;
let opener = null;
let flicker = 0;

function openViewer(card, right) {
  viewing = card;
  viewer.viewed.textContent = card.id + " · " + (card.score === null ? card.status.replace("_", " ") : card.score.toFixed(2)) +
    (card.difference ? " (" + signed(card.difference) + ")" : "");
  viewer.asked.textContent = card.instruction;
  const labels = card.images.map((image) => image.label);
  const before = labels.find((label) => label.startsWith("baseline"));
  for (const [select, wanted] of [[viewer.left, right && right !== "source" ? "source" : before || "source"], [viewer.right, right && right !== "source" ? right : "edit"]]) {
    select.replaceChildren(...labels.map((label) => Object.assign(document.createElement("option"), { value: label, textContent: label })));
    select.value = labels.find((label) => label === wanted) || labels.find((label) => label.startsWith(wanted)) || labels[0] || "";
  }
  showImages();
  if (!viewer.viewer.open) {
    opener = document.activeElement;
    viewer.viewer.showModal();
  }
  history.replaceState(null, "", "#view-" + card.id);
}

function showImages() {
  viewer.reduced.hidden = true;
  const of = (label) => viewing.images.find((image) => image.label === label);
  for (const [image, select] of [[viewer.over, viewer.left], [viewer.under, viewer.right]]) {
    const found = of(select.value);
    image.hidden = !found;
    if (found) show(image, found);
    image.alt = select.value;
  }
  setMode();
}

// The image itself, or its thumbnail where the page was moved away from the store.
function show(image, { full, thumbnail }) {
  image.onerror = () => {
    image.onerror = null;
    image.src = thumbnail;
    viewer.reduced.hidden = false;
  };
  if (full) image.src = full;
  else image.onerror();
}

function setMode() {
  const mode = viewer.mode.value;
  clearInterval(flicker);
  viewer.stage.className = mode;
  viewer.over.classList.remove("away");
  viewer.stage.style.setProperty("--cut", 100 - viewer.slide.value + "%");
  viewer.slide.disabled = mode !== "slider";
  viewer.legend.textContent = viewer.left.value + " | " + viewer.right.value;
  if (mode === "flicker") {
    viewer.legend.textContent = viewer.left.value;
    flicker = setInterval(() => {
      const away = viewer.over.classList.toggle("away");
      viewer.legend.textContent = (away ? viewer.right : viewer.left).value;
    }, FLICKER_MS);
  }
}

// The slider follows the pointer over the images too.
function slideTo(event) {
  if (viewer.mode.value !== "slider" || !(event.buttons & 1)) return;
  const box = viewer.stage.getBoundingClientRect();
  viewer.slide.value = 100 * (event.clientX - box.left) / box.width;
  setMode();
}

function chooseMode(mode) {
  viewer.mode.value = mode;
  setMode();
}

for (const select of [viewer.left, viewer.right]) select.addEventListener("input", showImages);
for (const control of [viewer.mode, viewer.slide]) control.addEventListener("input", setMode);
for (const kind of ["pointerdown", "pointermove"]) viewer.stage.addEventListener(kind, slideTo);
viewer.stage.addEventListener("dragstart", (event) => event.preventDefault());
document.getElementById("close").addEventListener("click", () => viewer.viewer.close());
document.getElementById("previous").addEventListener("click", () => step(-1));
document.getElementById("next").addEventListener("click", () => step(1));
viewer.viewer.addEventListener("close", () => {
  clearInterval(flicker);
  history.replaceState(null, "", "#pair-" + viewing.id);
  // Closing gives the focus back to the opener at once and tells of it later. Whoever has moved on by then keeps the focus.
  if ([opener, document.body].includes(document.activeElement)) focusCard(shown.indexOf(viewing));
});
