"use strict";
const cards = JSON.parse(document.getElementById("cards").textContent);
const gallery = document.getElementById("gallery");
const controls = Object.fromEntries(["category", "status", "sort", "search"].map((id) => [id, document.getElementById(id)]));
const PAGE = 48;
let shown = [];
let drawn = 0;

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function draw(card) {
  const failed = card.score === null;
  const score = failed ? element("span", { class: "score none" }, card.status.replace("_", " "))
    : element("span", { class: "score" }, card.score.toFixed(2));
  const title = element("h3", {}, element("a", { href: "#pair-" + card.id }, card.id), element("span", { class: "tag" }, [card.category, ...card.tags].join(" · ")), score);
  const images = element("div", { class: "images" }, ...card.images.map(({ label, url }) =>
    element("figure", {}, element("a", { href: url }, element("img", { src: url, alt: label, loading: "lazy" })), element("figcaption", {}, label))));
  const parts = [title, element("p", { class: "instruction" }, card.instruction), images];
  if (card.aspects.length)
    parts.push(element("p", { class: "aspects" }, ...card.aspects.map(([name, value]) => element("span", {}, name + " ", element("b", {}, value)))));
  if (card.error) parts.push(element("p", { class: "error" }, card.error));
  if (card.replies.length)
    parts.push(element("details", {}, element("summary", {}, "judge's reply"), ...card.replies.map((reply) => element("pre", { class: "reply" }, reply))));
  return element("article", { id: "pair-" + card.id, "data-category": card.category, "data-status": card.status }, ...parts);
}

function more() {
  gallery.append(...shown.slice(drawn, drawn + PAGE).map(draw));
  drawn = Math.min(drawn + PAGE, shown.length);
}

// A pair without a score needs attention most, so it comes before the worst score.
const orders = {
  worst: (a, b) => (a.score ?? -1) - (b.score ?? -1),
  best: (a, b) => (b.score ?? -1) - (a.score ?? -1),
  suite: () => 0,
};

function update() {
  const { category, status, sort, search } = controls;
  const wanted = search.value.trim().toLowerCase();
  shown = cards.filter((card) =>
    (!category.value || card.category === category.value) &&
    (!status.value || (status.value === "error" ? card.error !== null : card.status === status.value)) &&
    (!wanted || [card.id, card.instruction, ...card.tags].join(" ").toLowerCase().includes(wanted)));
  shown.sort(orders[sort.value]);
  document.getElementById("count").textContent = shown.length + " of " + cards.length + " pairs";
  gallery.replaceChildren();
  drawn = 0;
  more();
}

function follow() {
  const id = decodeURIComponent(location.hash.slice("#pair-".length));
  const place = shown.findIndex((card) => card.id === id);
  while (place >= drawn) more();
  if (place >= 0) document.getElementById("pair-" + id).scrollIntoView();
}

for (const name of new Set(cards.map((card) => card.category))) controls.category.append(element("option", { value: name }, name));
for (const control of Object.values(controls)) control.addEventListener("input", update);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting) && drawn < shown.length) more(); }, { rootMargin: "800px" })
  .observe(document.getElementById("more"));
window.addEventListener("hashchange", follow);
update();
follow();
