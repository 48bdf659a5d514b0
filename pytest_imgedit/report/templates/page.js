"use strict";
// What all pages share: elements, tables that are copied, and a pair that is looked at closely.
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") node.toggleAttribute(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Where a page may not use the clipboard itself, the text is selected and copied.
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = element("textarea", { readonly: true });
    box.value = text;
    button.after(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  const before = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

// Tables that are copied

function textRows(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
}

function markdown(rows) {
  const cell = (text) => String(text).replace(/\s+/g, " ").replace(/[\\|<>`*_[\]]/g, "\\$&");
  const [header, ...others] = rows.map((row) => `| ${row.map(cell).join(" | ")} |`);
  return [header, `|${rows[0].map(() => "---").join("|")}|`, ...others].join("\n") + "\n";
}

// A text that a spreadsheet would take for a formula is quoted by an apostrophe.
function csv(rows) {
  const safe = (value) => (typeof value !== "number" && /^[=+\-@\t\r]/.test(value) && isNaN(value) ? "'" + value : String(value));
  const cell = (value) => (/[",\n\r]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value));
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function copyButtons(rows) {
  const button = (text, format) => {
    const node = element("button", { type: "button", onclick: () => copyText(format(rows()), node) }, text);
    return node;
  };
  return element("span", { class: "copy" }, button("copy as Markdown", markdown), " ", button("copy as CSV", csv));
}

const regions = [...document.querySelectorAll(".wide")];

// A table that is wider than the page shows each row as a block, so that no column is cut.
function fitTables() {
  for (const region of regions) region.classList.remove("stacked");
  const wide = regions.filter((region) => region.scrollWidth > region.clientWidth);
  for (const region of wide) region.classList.add("stacked");
}

for (const region of regions) region.before(copyButtons(() => textRows(region.querySelector("table"))));
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", fitTables);
window.addEventListener("resize", fitTables);
fitTables();

function markOf(mark) {
  return element("span", { class: "quiet", title: MARKS[mark] || "" }, ` ${mark}`);
}

// One pair in a dialog: its source and several edits, which zoom together, and what was said of them.

const MOST_ZOOM = 16;
// Above this zoom, pixels are shown as squares.
const PIXELS_FROM = 4;

const KEYS = [["← →", "pairs"], ["1 – 9", "edits"], ["Enter", "one edit, large"], ["space", "flicker with the source"], ["d", "difference"], ["s", "slider"],
  ["+ − 0", "zoom, also Ctrl and the wheel; drag moves"]];
// Why an edit may be marked.
const MARKS = {
  "near-copy": "the edit hardly differs from its source",
  "near-copy of one of its sources": "the edit hardly differs from a source of its pair, the edited one or another",
  reframed: "the aspect ratio differs by over 3% from the source's",
  composited: "laid over white: the editor's image had transparent pixels",
  leak: "the edit equals the pair's reference",
  "duel won": "the judge prefers this run's edit to that of the run it is put against",
  "duel lost": "the judge prefers the edit of the run it is put against",
  "duel: tie": "the votes of both orders are even",
  "duel: identical edits": "both runs made the same image, which counts half",
  "duel: not decided": "a vote of the duel is missing",
  "duel: order decides": "the judge changes its vote with the order of the edits",
  "other sources": "this run edited other source images of the pair than those shown",
};
// How much brighter a difference is shown, as in the style.
const GAIN = 3;

// A pair with several sources has `source 1` and so on, of which one is `(edited)`.
function isSource({ label }) {
  return label.startsWith("source");
}

const pairView = {
  pair: null,
  actions: null,
  mode: "plain",
  active: 0,
  zoom: { scale: 1, x: 0, y: 0 },
  parts: {},

  // Shows a pair. `actions` are `step(by)`, `close()` and `choose(edit)`; all of them change the page's address.
  open(pair, active, actions) {
    const isOther = this.pair?.id !== pair.id || !this.isOpen();
    this.pair = pair;
    this.actions = actions;
    this.active = Math.min(active, Math.max(pair.edits.length - 1, 0));
    if (!this.parts.dialog) this.build();
    if (isOther) this.draw();
    this.drawSide();
    if (!this.isOpen()) {
      this.parts.dialog.showModal();
      this.parts.stage.focus({ preventScroll: true });
    }
    for (const url of pair.preload) new Image().src = url;
  },

  isOpen() {
    return Boolean(this.parts.dialog?.open);
  },

  close() {
    if (this.isOpen()) this.parts.dialog.close();
  },

  build() {
    const button = (text, title, onclick) => element("button", { type: "button", title, onclick }, text);
    const title = element("h2", { id: "look-title" });
    const place = element("span", { class: "quiet", id: "look-place" });
    const modes = Object.fromEntries(
      [["plain", "edits", "the edits alone (e)"], ["flicker", "flicker", "switch to the source (space)"], ["difference", "difference", `difference from the source, ${GAIN} times as bright (d)`], ["slider", "slider", "slide between source and edit (s)"]]
        .map(([mode, text, hint]) => [mode, button(text, hint, () => this.setMode(mode))]));
    const slide = element("input", { type: "range", min: "0", max: "100", value: "50", "aria-label": "Share of the source", id: "look-slide" });
    const against = element("select", { "aria-label": "The source that edits are compared with" });
    const link = button("copy link", "copy a link to this pair", () => copyText(location.href, link));
    const stage = element("div", { id: "look-stage", tabindex: "-1" });
    const side = element("aside", { id: "look-side", "aria-label": "What was said of the edits" });
    const dialog = element("dialog", { id: "look", "aria-labelledby": "look-title" },
      element("header", {}, title, place,
        button("previous", "previous pair (←)", () => this.actions.step(-1)), button("next", "next pair (→)", () => this.actions.step(1)),
        link, button("close", "close (Esc)", () => dialog.close())),
      element("p", { id: "look-instruction" }),
      element("div", { class: "tools", role: "group", "aria-label": "How edits are shown" }, ...Object.values(modes), against, slide,
        button("−", "zoom out (-)", () => this.zoomBy(1 / 1.5)), element("output", { id: "look-zoom" }, "100%"), button("+", "zoom in (+)", () => this.zoomBy(1.5))),
      element("p", { class: "quiet keys" }, "Keys: ", ...KEYS.flatMap(([key, text]) => [element("kbd", {}, key), ` ${text} · `]), element("kbd", {}, "Esc"), " close"),
      element("div", { id: "look-body" }, stage, side),
      element("p", { id: "look-reduced", class: "quiet", hidden: true }, "Thumbnails. The images themselves are in the store of the run."));
    this.parts = { dialog, title, place, modes, against, slide, stage, side };
    document.body.append(dialog);
    against.addEventListener("input", () => {
      this.drawStage();
      this.drawSide();
    });
    slide.addEventListener("input", () => this.place());
    dialog.addEventListener("keydown", (event) => this.press(event));
    dialog.addEventListener("close", () => this.actions.close());
    stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && this.zoom.scale === 1) return;  // the wheel scrolls
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 500), event);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => this.move(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("dragstart", (event) => event.preventDefault());
    stage.addEventListener("dblclick", (event) => this.toggleSolo(event.target.closest(".edit")));
  },

  // Shows the source and the chosen edit alone, or all again.
  toggleSolo(pane) {
    if (pane) this.choose([...this.parts.stage.querySelectorAll(".edit")].indexOf(pane));
    this.parts.stage.classList.toggle("solo");
  },

  draw() {
    const { title, place, against } = this.parts;
    title.textContent = this.pair.id;
    place.textContent = this.pair.place;
    document.getElementById("look-instruction").textContent = this.pair.instruction;
    document.getElementById("look-reduced").hidden = true;
    const sources = this.pair.pictures.filter(isSource).map(({ label }) => label);
    against.replaceChildren(...sources.map((label) => element("option", { value: label, selected: label.endsWith("(edited)") }, `against ${label}`)));
    against.hidden = sources.length < 2;
    this.drawStage();
    this.zoom = { scale: 1, x: 0, y: 0 };
    this.setMode(this.mode);
    this.parts.dialog.scrollTop = 0;
  },

  // Of several sources, one is compared with the edits, which stand right behind the sources.
  drawStage() {
    const { pictures, edits } = this.pair;
    const source = pictures.find(({ label }) => label === this.parts.against.value);
    const panes = pictures.map((picture) => this.pane(picture, source, null));
    const behind = this.parts.against.hidden ? panes.length : pictures.filter(isSource).length;
    panes.splice(behind, 0, ...edits.map((edit, index) => this.pane(edit.picture, source, index)));
    this.parts.stage.replaceChildren(...panes);
  },

  pane(picture, source, index) {
    const isEdit = index !== null;
    const label = isEdit ? this.pair.edits[index].label : picture.label;
    const frame = element("div", { class: "frame" });
    if (picture) frame.append(this.image(picture, `${label} of ${this.pair.id}`));
    else frame.append(element("p", { class: "error" }, this.pair.edits[index].error || "no image"));
    if (isEdit && picture && source) frame.append(element("div", { class: "over" }, this.image(source, "")));
    const caption = element("figcaption", {}, label);
    if (isEdit) {
      const { score, marks } = this.pair.edits[index];
      caption.prepend(element("kbd", {}, String(index + 1)), " ");
      caption.append(element("b", {}, ` ${score}`), ...marks.map(markOf));
    }
    const pane = element("figure", { class: isEdit ? "pane edit" : picture === source ? "pane source" : "pane" }, frame, caption);
    if (isEdit) caption.addEventListener("click", () => this.choose(index));
    return pane;
  },

  // The image itself, or its thumbnail where the page was moved away from the store.
  image({ full, thumbnail }, alt) {
    const image = element("img", { alt, src: full || thumbnail });
    image.addEventListener("error", () => {
      document.getElementById("look-reduced").hidden = false;
      if (!image.src.endsWith(thumbnail)) image.src = thumbnail;
    }, { once: true });
    return image;
  },

  async drawSide() {
    const pair = this.pair;
    const edit = pair.edits[this.active];
    for (const [index, pane] of [...this.parts.stage.querySelectorAll(".edit")].entries())
      pane.classList.toggle("active", index === this.active);
    const facts = element("dl", {}, ...pair.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    const names = pair.measures.map(({ name }) => element("th", { scope: "col" }, name));
    const row = (edit, index) => element("tr", { class: index === this.active ? "active" : "", onclick: () => this.choose(index) },
      element("th", { scope: "row", title: edit.label }, `${index + 1} ${edit.label}`), ...pair.measures.map(({ values }) => element("td", {}, values[index])));
    const measures = element("table", {}, element("thead", {}, element("tr", {}, element("th", {}, "edit"), ...names)), element("tbody", {}, ...pair.edits.map(row)));
    const said = element("div", { id: "look-said" });
    this.parts.side.replaceChildren(facts, element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Measures by edit" }, measures));
    if (!edit) return;
    this.parts.side.append(element("h3", {}, `${this.active + 1} · ${edit.label}`), said);
    if (edit.error) said.append(element("p", { class: "error" }, edit.error));
    const texts = await edit.read();
    if (this.pair !== pair || pair.edits[this.active] !== edit) return;
    for (const { title, text } of texts) said.append(element("h4", {}, title), ...(text ? [element("pre", { class: "reply", tabindex: "0" }, text)] : []));
  },

  choose(index) {
    if (index < 0 || index >= this.pair.edits.length) return;
    this.actions.choose(index);
    this.parts.stage.querySelectorAll(".edit")[index].scrollIntoView({ block: "nearest" });
  },

  setMode(mode) {
    this.mode = mode;
    this.parts.stage.dataset.mode = mode;
    for (const [name, button] of Object.entries(this.parts.modes)) button.setAttribute("aria-pressed", name === mode);
    this.parts.slide.hidden = mode !== "slider";
    this.place();
  },

  place() {
    const { scale, x, y } = this.zoom;
    const style = this.parts.stage.style;
    style.setProperty("--scale", scale);
    style.setProperty("--x", `${100 * x}%`);
    style.setProperty("--y", `${100 * y}%`);
    style.setProperty("--cut", `${100 - this.parts.slide.value}%`);
    this.parts.stage.classList.toggle("pixels", scale >= PIXELS_FROM);
    this.parts.stage.classList.toggle("zoomed", scale > 1);
    document.getElementById("look-zoom").textContent = `${Math.round(100 * scale)}%`;
  },

  // The share of a frame's width and height at which an event is.
  shares(event) {
    const frame = event?.target.closest(".frame");
    if (!frame) return { x: 0.5, y: 0.5 };
    const box = frame.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height, width: box.width, height: box.height };
  },

  zoomBy(factor, event) {
    const at = this.shares(event);
    const scale = Math.min(Math.max(this.zoom.scale * factor, 1), MOST_ZOOM);
    const ratio = scale / this.zoom.scale;
    this.zoomTo(scale, at.x - (at.x - this.zoom.x) * ratio, at.y - (at.y - this.zoom.y) * ratio);
  },

  zoomTo(scale, x, y) {
    const within = (value) => Math.min(Math.max(value, 1 - scale), 0);
    this.zoom = { scale, x: within(x), y: within(y) };
    this.place();
  },

  move(event) {
    const frame = event.target.closest(".frame");
    if (!(event.buttons & 1) || !frame) return;
    if (event.type === "pointerdown") frame.setPointerCapture(event.pointerId);
    const at = this.shares(event);
    if (this.mode === "slider") {
      this.parts.slide.value = 100 * at.x;
      this.place();
    } else if (event.type === "pointermove") {
      this.zoomTo(this.zoom.scale, this.zoom.x + event.movementX / at.width, this.zoom.y + event.movementY / at.height);
    }
  },

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === this.parts.against) return;
    const isSliding = event.target === this.parts.slide;
    const toggle = (mode) => this.setMode(this.mode === mode ? "plain" : mode);
    const keys = {
      ArrowLeft: () => isSliding || this.actions.step(-1),
      ArrowRight: () => isSliding || this.actions.step(1),
      k: () => this.actions.step(-1),
      j: () => this.actions.step(1),
      " ": () => toggle("flicker"),
      e: () => this.setMode("plain"),
      Enter: () => event.target.closest("button") !== null || this.toggleSolo(),
      d: () => toggle("difference"),
      s: () => toggle("slider"),
      "+": () => this.zoomBy(1.5),
      "-": () => this.zoomBy(1 / 1.5),
      0: () => this.zoomTo(1, 0, 0),
    };
    const act = /^[1-9]$/.test(event.key) ? () => this.choose(Number(event.key) - 1) : keys[event.key];
    if (!act || act() === true) return;
    event.preventDefault();
  },
};

