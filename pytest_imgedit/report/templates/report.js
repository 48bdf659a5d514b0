// The gallery: which pairs are shown, in which order, and how one is drawn.
const cards = JSON.parse(document.getElementById("cards").textContent);
const gallery = document.getElementById("gallery");
const controls = Object.fromEntries(["category", "status", "low", "high", "sort", "search"].map((id) => [id, document.getElementById(id)]));
const PAGE = 48;
let shown = [];
let drawn = 0;

// As it stands on the card: what is filtered by is what is seen.
function shownScore(card) {
  return Number(card.score.toFixed(2));
}

function signed(difference) {
  return (difference > 0 ? "+" : "") + difference.toFixed(2);
}

function isNeeded(card) {
  return card.status !== "not_needed";
}

function shownState(card) {
  return card.score === null ? card.status.replace("_", " ") : card.score.toFixed(2);
}

function draw(card) {
  const failed = card.score === null;
  const score = failed ? element("span", { class: isNeeded(card) ? "score none" : "score quiet" }, shownState(card))
    : element("span", { class: "score" }, shownState(card));
  const title = element("h3", {}, element("a", { href: "#pair-" + card.id }, card.id), element("span", { class: "tag" }, [card.category, ...card.tags].join(" · ")), score);
  if (card.difference) title.append(element("span", { class: card.difference < 0 ? "moved fell" : "moved rose" }, signed(card.difference)));
  const images = element("div", { class: "images" }, ...card.images.map(({ label, thumbnail }) => {
    const button = element("button", { type: "button", title: "look closer", onclick: () => look(card, label) }, element("img", { src: thumbnail, alt: label + " of " + card.id, loading: "lazy" }));
    return element("figure", {}, button, element("figcaption", {}, label));
  }));
  const parts = [title, element("p", { class: "instruction" }, card.instruction), images];
  if (card.aspects.length)
    parts.push(element("p", { class: "aspects" }, ...card.aspects.map(([name, value]) => element("span", {}, name + " ", element("b", {}, value)))));
  if (card.change !== null) parts.push(element("p", { class: "quiet" }, "change from the source " + card.change.toFixed(1)));
  if (card.made) parts.push(element("p", { class: "quiet" }, card.made));
  if (card.greedy !== null) parts.push(element("p", { class: "quiet" }, "expected score; the greedy reply gives " + card.greedy));
  if (card.error) parts.push(element("p", { class: "error" }, card.error));
  if (card.replies.length)
    parts.push(element("details", {}, element("summary", {}, "judge's reply"), ...card.replies.map((reply) => element("pre", { class: "reply" }, reply))));
  if (card.duel) parts.push(...drawDuel(card.duel));
  return element("article", { id: "pair-" + card.id, tabindex: "-1", "data-category": card.category, "data-status": card.status }, ...parts);
}

// How the duels of a pair ended, and each vote with the judge's reply.
function drawDuel({ ending, line, missing, votes }) {
  const nodes = [element("p", { class: ending === "error" ? "error" : "quiet" }, "duel " + line)];
  if (missing) nodes.push(element("p", { class: "quiet" }, missing));
  const said = ([title, text]) => [element("p", { class: "quiet vote" }, title), text ? element("pre", { class: "reply" }, text) : null];
  if (votes.length) nodes.push(element("details", {}, element("summary", {}, "votes of the duel"), ...votes.flatMap(said)));
  return nodes;
}

function more() {
  const nodes = shown.slice(drawn, drawn + PAGE).map(draw);
  gallery.append(...nodes);
  // Who has no mouse scrolls a long text by keys, for which it must take the focus.
  for (const node of nodes) {
    for (const text of node.querySelectorAll(".instruction, .tag, .aspects, .error")) {
      if (text.scrollHeight > text.clientHeight || text.scrollWidth > text.clientWidth) text.tabIndex = 0;
    }
  }
  drawn = Math.min(drawn + PAGE, shown.length);
}

// A pair without a score needs attention most, so it comes before the worst score; one that was not needed, none.
const badness = (card) => card.score ?? (isNeeded(card) ? -1 : 11);
const orders = {
  worst: (a, b) => badness(a) - badness(b),
  best: (a, b) => (b.score ?? -1) - (a.score ?? -1),
  drop: (a, b) => (a.difference ?? 0) - (b.difference ?? 0),
  rise: (a, b) => (b.difference ?? 0) - (a.difference ?? 0),
  change: (a, b) => (a.change ?? 256) - (b.change ?? 256),  // over any change, so that pairs without an edit come last
  duel: (a, b) => (a.duel?.share ?? 2) - (b.duel?.share ?? 2),  // over any share, so that pairs without a vote come last
  measure: (a, b) => measureRank(a) - measureRank(b),
  suite: () => 0,
};

// The worst value of the chosen measure comes first, and pairs without a value last.
function measureRank(card) {
  const { position, sign } = controls.sort.selectedOptions[0].dataset;
  const value = card.values[position];
  return value === null ? Number.MAX_VALUE : sign * value;
}

const kinds = {
  scored: (card) => card.status === "scored",
  error: (card) => card.error !== null,
  copy: (card) => card.near_copy,
  reframed: (card) => card.reframed,
  composited: (card) => card.composited,
  leak: (card) => card.leaked,
  collapsed: (card) => card.collapsed,
  fell: (card) => card.difference < 0,
  rose: (card) => card.difference > 0,
  "duel-turned": (card) => Boolean(card.duel?.turned),
};
for (const ending of ["won", "lost", "tie", "identical", "error"]) kinds[`duel-${ending}`] = (card) => card.duel?.ending === ending;
kinds["duel-tie"] = (card) => card.duel?.ending === "tie" && !card.duel.turned;

function votesOf(card) {
  return card.duel ? card.duel.votes : [];
}

function update() {
  const { category, status, low, high, sort, search } = controls;
  const wanted = search.value.trim().toLowerCase();
  const bounded = low.value !== "" || high.value !== "";
  shown = cards.filter((card) =>
    (!category.value || card.category === category.value) &&
    (!status.value || kinds[status.value](card)) &&
    (!bounded || (card.score !== null && shownScore(card) >= (low.value || 0) && shownScore(card) <= (high.value || 10))) &&
    (!wanted || [card.id, card.category, card.instruction, ...card.tags, card.error || "", ...card.replies, ...votesOf(card).flat()].join(" ").toLowerCase().includes(wanted)));
  shown.sort(orders[sort.value]);
  document.getElementById("count").textContent = shown.length + " of " + cards.length + " pairs";
  gallery.replaceChildren();
  drawn = 0;
  more();
}

function focusCard(place) {
  if (place < 0 || place >= shown.length) return;
  while (place >= drawn) more();
  const node = document.getElementById("pair-" + shown[place].id);
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "nearest" });
}

function focused() {
  const node = document.activeElement.closest("article");
  return node ? shown.findIndex((card) => "pair-" + card.id === node.id) : -1;
}

// The edits of a pair are looked at beside its other images.
function look(card, label) {
  const isEdit = (image) => /^(baseline )?edit/.test(image.label);
  const edits = card.images.filter(isEdit);
  if (!edits.length) edits.push({ label: "edit" });
  const place = shown.indexOf(card);
  const isBefore = (edit) => edit.label.startsWith("baseline");
  const measures = [["score", card.score?.toFixed(2), card.before?.toFixed(2)], ...card.aspects];
  const neighbours = [shown[place - 1], shown[place + 1]].filter(Boolean);
  pairView.open({
    id: card.id,
    instruction: card.instruction,
    place: `${place + 1} of ${shown.length}`,
    pictures: card.images.filter((image) => !isEdit(image)),
    edits: edits.map((edit) => ({
      label: edit.label,
      picture: edit.thumbnail ? edit : null,
      score: isBefore(edit) ? card.before?.toFixed(2) ?? "" : shownState(card),
      marks: isBefore(edit) ? [] : card.tags.filter((tag) => tag in MARKS),
      error: isBefore(edit) ? null : card.error,
      read: async () => [...(isBefore(edit) ? [] : card.replies.map((text) => ({ title: "judge's reply", text }))),
        ...votesOf(card).map(([title, text]) => ({ title, text }))],
    })),
    facts: [["category", card.category], ["tags", card.tags.join(", ")], ["change from the source, 0 to 255", card.change?.toFixed(1)], ["edit", card.made], ["duel", card.duel?.line]].filter(([, text]) => text),
    measures: measures.map(([name, now, before]) => ({ name, values: edits.map((edit) => (isBefore(edit) ? before : now) ?? "–") })),
    preload: neighbours.flatMap((other) => other.images.map((image) => image.full).filter(Boolean)),
  }, Math.max(edits.findIndex((edit) => edit.label === label), 0), {
    step: (by) => shown[place + by] && look(shown[place + by]),
    choose: (index) => look(card, edits[index].label),
    close: () => {
      history.replaceState(null, "", "#pair-" + card.id);
      // Closing gives the focus back at once and tells of it later. Whoever has moved on by then keeps the focus.
      if (document.activeElement === document.body || gallery.contains(document.activeElement)) focusCard(place);
    },
  });
  history.replaceState(null, "", "#view-" + card.id);
}

function step(by) {
  focusCard(Math.max(0, focused() + by));
}

function follow() {
  const [, kind, id] = location.hash.match(/^#(pair|view)-([\w.-]+)$/) || [];
  if (!kind || !cards.some((card) => card.id === id)) return;
  if (!shown.some((card) => card.id === id)) {
    document.getElementById("filters").reset();  // the pair that the link names is among those filtered out
    update();
  }
  const place = shown.findIndex((card) => card.id === id);
  focusCard(place);
  document.getElementById("pair-" + id).scrollIntoView();
  if (kind === "view") look(shown[place]);
}

const keys = {
  j: () => step(1),
  k: () => step(-1),
  "/": () => controls.search.focus(),
  Enter: () => look(shown[focused()]),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && typing === controls.search) controls.search.blur();
  if (pairView.isOpen()) return;
  if (event.ctrlKey || event.metaKey || event.altKey || typing || !(event.key in keys)) return;
  if (event.key === "Enter" && event.target.tagName !== "ARTICLE") return;
  event.preventDefault();
  keys[event.key]();
});
for (const name of new Set(cards.map((card) => card.category))) controls.category.append(element("option", { value: name }, name));
for (const control of Object.values(controls)) control.addEventListener("input", update);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
const bottom = document.getElementById("more");
const scrolled = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting) || drawn >= shown.length) return;
  more();
  // Who scrolls on before the next frame would leave the bottom in view all the time, of which nothing is told.
  scrolled.unobserve(bottom);
  scrolled.observe(bottom);
}, { rootMargin: "800px" });
scrolled.observe(bottom);
window.addEventListener("hashchange", follow);
update();
follow();
