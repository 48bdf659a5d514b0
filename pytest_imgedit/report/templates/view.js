// The page over several runs. All that is chosen stands in the hash of its address.
const PAGE = 50;
const MOST_RUNS = 12;
const main = document.getElementById("main");

// The scripts of runs give their values to `receive`.
const imgedit = {
  list: [],
  waiting: {},
  receive(kind, key, value) {
    if (kind === "list") {
      this.list = value;
      show();
    } else this.waiting[kind + key](value);
  },
  loaded: {},
  load(kind, key) {
    const name = kind + key;
    this.loaded[name] ??= new Promise((resolve, reject) => {
      this.waiting[name] = resolve;
      const src = "runs/" + encodeURIComponent(key + (kind === "items" ? "" : "-" + kind)) + ".js";
      document.head.append(element("script", { src, onerror: () => reject(new Error(src + " is not there")) }));
    });
    return this.loaded[name];
  },
};

// The address

let state = new URLSearchParams();

function address(changes) {
  const next = new URLSearchParams(state);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) next.delete(name);
    else next.set(name, value);
  }
  return "#" + next;
}

// Replaces the address for what is typed or paged through, so that "back" leads to another view.
function go(changes, isNew = false) {
  history[isNew ? "pushState" : "replaceState"](null, "", address(changes));
  show();
}

function keysIn(name) {
  const known = new Set(imgedit.list.filter((run) => !run.running).map((run) => run.key));
  return (state.get(name) || "").split(",").filter((key) => known.has(key)).slice(0, MOST_RUNS);
}

// The runs whose pairs are shown: one that was clicked, or those that are ticked.
function chosenKeys() {
  const [only] = keysIn("only");
  return only ? [only] : keysIn("runs");
}

// Words

function nameOf(run) {
  return run.name || run.editor + (run.params ? ` (${run.params})` : "");
}

// The name of a run, with its id where another one has the name too.
function label(run) {
  const name = nameOf(run);
  const isAlone = imgedit.list.filter((other) => nameOf(other) === name).length === 1;
  return isAlone ? name : `${name} ${run.key}`;
}

// A long path is known by its end.
function shortened(text) {
  return text.length > 40 ? text.replace(/(^|[:\s])\/?(?:[^/\s]+\/){2,}([^/\s]+\/[^/\s]+)/g, "$1…/$2") : text;
}

function fixed(value, decimals = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(decimals);
}

function duration(seconds) {
  if (seconds === null) return "–";
  const minutes = Math.floor(seconds / 60);
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

// Controls that write the address

function field(text, control) {
  return element("label", {}, text, control);
}

// A choice takes back what does not fit another one: `taken` names it.
function choice(name, options, fallback = "", taken = {}) {
  const select = element("select", { id: name }, ...options.map(([value, text]) => element("option", { value }, text)));
  select.value = state.get(name) ?? fallback;
  select.addEventListener("input", () => go({ [name]: select.value === fallback ? "" : select.value, page: "", ...taken }));
  return select;
}

function typed(name, attributes) {
  const input = element("input", { id: name, ...attributes });
  input.value = state.get(name) || "";
  input.addEventListener("input", () => go({ [name]: input.value, page: "" }));
  return input;
}

// Typing draws the page again, and goes on in the same place.
function draw(...nodes) {
  const focused = document.activeElement;
  const id = main.contains(focused) ? focused.id : "";
  const ends = focused.type === "text" || focused.type === "search" ? [focused.selectionStart, focused.selectionEnd] : null;
  main.replaceChildren(...nodes);
  const again = id && document.getElementById(id);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (ends) again.setSelectionRange(...ends);
}

// The runs

// Columns of a run beside its measures: what they show, and what they are sorted by.
const FACTS = {
  run: (run) => run.name || run.key,
  outcome: (run) => run.state,
  duels: (run) => run.duels,
  pairs: (run) => run.pairs,
  editor: (run) => (run.params ? `${run.editor} ${run.params}` : run.editor),
  suite: (run) => run.suite,
  judge: (run) => run.judge,
  finished: (run) => run.finished,
  time: (run) => run.seconds,
};
// Those that are said once if all runs share them.
const SHARED = ["editor", "suite", "judge"];

function measuresOf(runs) {
  return [...new Set(runs.flatMap((run) => (run.measures || []).map((measure) => measure.name)))];
}

function measureOf(run, name) {
  return (run.measures || []).find((measure) => measure.name === name);
}

function interval(measure) {
  if (!measure?.ci95) return "";
  return measure.ci95.map((end) => fixed(end, measure.decimals)).join(" to ");
}

function meanCell(measure) {
  return element("td", {}, element("b", {}, fixed(measure?.mean, measure?.decimals)), element("small", {}, interval(measure)));
}

// A click sorts by a column, a second one the other way; measures begin with the best.
function sortHeader(name, isBestLow) {
  const isSorted = state.get("by") === name;
  const isDown = Boolean(state.get("down"));
  const first = isBestLow === undefined || isBestLow ? "" : "1";
  const sort = () => go({ by: name, down: isSorted ? (isDown ? "" : "1") : first });
  const attributes = { scope: "col", class: name in FACTS ? `words fact-${name}` : "", ...(isSorted ? { "aria-sort": isDown ? "descending" : "ascending" } : {}) };
  return element("th", attributes, element("button", { type: "button", id: "by-" + name, onclick: sort }, name + (isSorted ? (isDown ? " ▼" : " ▲") : "")));
}

function sorted(rows, key, isDown) {
  const rank = (row) => key(row) ?? null;
  const order = (a, b) => {
    const [x, y] = [rank(a), rank(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) * (isDown ? -1 : 1);
  };
  return rows.sort(order);
}

function showRuns() {
  drawn = { key: "", rows: [], measures: [] };
  const finished = imgedit.list.filter((run) => !run.running);
  const wanted = (state.get("find") || "").toLowerCase();
  const measures = measuresOf(finished);
  const by = state.get("by");
  const text = (run) => [run.key, run.name, run.suite, run.editor, run.params, run.judge, run.state].join(" ").toLowerCase();
  let rows = imgedit.list.filter((run) => text(run).includes(wanted));
  if (by) rows = sorted(rows, FACTS[by] || ((run) => measureOf(run, by)?.mean), state.get("down"));
  const ticked = keysIn("runs");
  const shared = finished.length > 1 ? SHARED.filter((name) => new Set(finished.map(FACTS[name])).size === 1) : [];
  const facts = Object.keys(FACTS).filter((name) => !shared.includes(name) && (name !== "duels" || finished.some((run) => run.duels)));
  const [first, second, third, ...others] = facts;
  const names = [first, second, ...measures, third, ...others];
  const tick = (keys) => go({ runs: keys.slice(0, MOST_RUNS).join(","), only: "" });
  const open = element("button", { type: "button", id: "open", disabled: !ticked.length, onclick: () => go({ view: "pairs", only: "" }, true) },
    `show pairs of ${ticked.length || "the ticked"} run${ticked.length === 1 ? "" : "s"}`);
  const tickAll = element("input", { type: "checkbox", id: "tick-all", "aria-label": `choose all, at most ${MOST_RUNS}` });
  tickAll.checked = ticked.length > 0 && ticked.length === Math.min(finished.length, MOST_RUNS);
  tickAll.addEventListener("input", () => tick(tickAll.checked ? rows.filter((run) => !run.running).map((run) => run.key) : []));
  const cell = (run, name) => {
    if (!(name in FACTS)) return meanCell(measureOf(run, name));
    const value = name === "time" ? duration(run.seconds) : String(FACTS[name](run));
    return element("td", { class: `words fact-${name}`, title: value }, shortened(value));
  };
  const row = (run) => {
    if (run.running) return element("tr", {}, element("td", {}), element("th", { scope: "row" }, run.key), element("td", { colspan: names.length - 1, class: "words" }, run.running));
    const box = element("input", { type: "checkbox", id: "tick-" + run.key, "aria-label": "choose " + label(run) });
    box.checked = ticked.includes(run.key);
    box.disabled = !box.checked && ticked.length >= MOST_RUNS;
    box.addEventListener("input", () => tick(box.checked ? [...ticked, run.key] : ticked.filter((key) => key !== run.key)));
    const link = element("a", { href: address({ view: "pairs", only: run.key }) }, run.name || run.key);
    return element("tr", { title: run.outcome, "data-run": run.key }, element("td", {}, box), element("th", { scope: "row" }, link), ...names.slice(1).map((name) => cell(run, name)));
  };
  const headers = names.map((name) => sortHeader(name, name in FACTS ? undefined : finished.some((run) => measureOf(run, name)?.lower)));
  const table = element("table", { class: "runs" }, element("thead", {}, element("tr", {}, element("th", {}, tickAll), ...headers)), element("tbody", {}, ...rows.map(row)));
  table.addEventListener("keydown", (event) => stepFocus(event, [...table.querySelectorAll("tbody input")]));
  const copied = () => [[...facts, ...measures.flatMap((name) => [name, `${name}, 95% interval`])],
    ...rows.filter((run) => !run.running).map((run) => [...facts.map((name) => FACTS[name](run)),
      ...measures.flatMap((name) => [fixed(measureOf(run, name)?.mean, measureOf(run, name)?.decimals), interval(measureOf(run, name))])])];
  draw(
    element("div", { class: "choose" }, field("Find", typed("find", { type: "search", placeholder: "name, editor, suite or judge" })), open,
      element("output", {}, `${rows.length} of ${imgedit.list.length} runs`), copyButtons(copied)),
    element("p", { class: "quiet" }, ["Tick up to 12 runs to see their pairs side by side, or click one.", ...shared.map((name) => `${name}: ${FACTS[name](finished[0])}`)].join(" · ")),
    rows.length ? element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" }, table) : element("p", {}, "No run has these words."));
}

function stepFocus(event, nodes) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const next = by && nodes[nodes.indexOf(event.target) + by];
  if (event.key === "Enter" && event.target.type === "checkbox") document.getElementById("open").click();
  if (!next) return;
  event.preventDefault();
  next.focus();
}

// Pairs by models

// What is drawn, so that looking at another pair draws no table anew.
let drawn = { key: "", rows: [], measures: [] };
let table = { keys: "", runs: [], rows: [], replies: null };

// The results of a run, with what its pairs are, which runs of one suite share.
async function loadItems(key) {
  const items = await imgedit.load("items", key);
  const status = items.edits.map((_, place) => items.status[place] || "scored");
  return { ...(await imgedit.load("pairs", items.pairs)), ...items, status };
}

async function loadTable(keys) {
  const name = keys.join();
  if (table.keys === name) return table;
  const infos = keys.map((key) => imgedit.list.find((run) => run.key === key));
  const items = await Promise.all(keys.map((key) => loadItems(key)));
  const runs = infos.map((info, index) => ({ ...info, label: label(info), items: items[index] }));
  const rows = new Map();
  for (const [place, { items: { id: ids } }] of runs.entries())
    for (const [index, id] of ids.entries()) {
      if (!rows.has(id)) rows.set(id, { id, places: runs.map(() => -1) });
      rows.get(id).places[place] = index;
    }
  table = { keys: name, runs, rows: [...rows.values()], replies: null };
  return table;
}

// A value of the first run that has the pair: runs share what a pair is, but see `hasOtherSources`.
function of(row, name) {
  const place = row.places.findIndex((index) => index >= 0);
  return table.runs[place].items[name][row.places[place]];
}

function all(row, name) {
  return row.places.flatMap((index, place) => (index < 0 ? [] : [table.runs[place].items[name][index] ?? null]));
}

// Whether the edit that is shown of a run has other source images than those shown, which are the first run's.
function hasOtherSources(row, place) {
  const index = row.places[place];
  const { edits, inputs } = table.runs[place].items;
  return Boolean(edits[index]) && inputs[index] !== of(row, "inputs");
}

function marksOf(row, place) {
  const marks = table.runs[place].items.marks[row.places[place]] || [];
  return hasOtherSources(row, place) ? [...marks, "other sources"] : marks;
}

// A line for each run that edited other source images than those shown.
function tellOtherSources() {
  const lines = table.runs.map((run, place) => {
    const ids = table.rows.filter((row) => hasOtherSources(row, place)).map((row) => row.id);
    const named = ids.slice(0, 3).join(", ") + (ids.length > 3 ? ", …" : "");
    return ids.length ? `Run ${run.label} edited other source images of ${ids.length} ${ids.length === 1 ? "pair" : "pairs"} than are shown (${named}).` : "";
  });
  const text = lines.filter(Boolean).join(" ");
  return text ? element("p", { class: "quiet", id: "other-sources" }, text) : null;
}

function value(row, place, measure) {
  const index = row.places[place];
  return index < 0 ? null : table.runs[place].items.values[measure]?.[index] ?? null;
}

function values(row, measure) {
  return row.places.map((_, place) => value(row, place, measure)).filter((number) => number !== null);
}

function mean(numbers) {
  return numbers.length ? numbers.reduce((sum, number) => sum + number, 0) / numbers.length : null;
}

function spread(row, measure) {
  const numbers = values(row, measure);
  return numbers.length > 1 ? Math.max(...numbers) - Math.min(...numbers) : null;
}

// The largest difference of a further judge's score from the judge's, in any run.
function disagreement(row) {
  const numbers = table.runs.flatMap((run, place) => (run.further || []).map((name) => [value(row, place, "score"), value(row, place, `${name}.score`)]))
    .filter(([ours, theirs]) => ours !== null && theirs !== null).map(([ours, theirs]) => Math.abs(ours - theirs));
  return numbers.length ? Math.max(...numbers) : null;
}

// The places of the two runs whose difference is shown, by default the first and the last.
function compared() {
  const place = (name, fallback) => {
    const found = table.runs.findIndex((run) => run.key === state.get(name));
    return found < 0 ? fallback : found;
  };
  return [place("a", 0), place("b", table.runs.length - 1)];
}

function difference(row, measure) {
  const [first, last] = compared().map((place) => value(row, place, measure));
  return first === null || last === null ? null : first - last;
}

// The share of votes between the edits of the two runs that is for the first of them.
function won(row) {
  const [first, last] = compared();
  const shares = table.runs[first].items.duels[table.runs[last].key];
  return shares?.[row.places[first]] ?? null;
}

// The same of every two runs, for one pair.
function votesOf(row) {
  return table.runs.flatMap((run, place) => table.runs.slice(place + 1).flatMap((other) => {
    const share = run.items.duels[other.key]?.[row.places[place]];
    return share === undefined ? [] : [[`votes for ${run.label} against ${other.label}`, fixed(share)]];
  }));
}

const haveDuels = () => table.runs.some((run) => table.runs.some((other) => run.items.duels[other.key]));

function change(row) {
  const numbers = all(row, "change").filter((number) => number !== null);
  return numbers.length ? Math.max(...numbers) : null;
}

const shownAs = {
  scored: (row) => all(row, "status").includes("scored"),
  error: (row) => all(row, "error").some((error) => error !== null),
  "near-copy": (row) => all(row, "marks").some((marks) => marks?.some((mark) => mark.startsWith("near-copy"))),
  reframed: (row) => all(row, "marks").some((marks) => marks?.includes("reframed")),
  composited: (row) => all(row, "marks").some((marks) => marks?.includes("composited")),
  leak: (row) => all(row, "marks").some((marks) => marks?.includes("leak")),
};
// How the duels of pairs end that one looks at; a pair is shown if it ends so in some run.
const DUELS = ["duel won", "duel lost", "duel: tie", "duel: order decides", "duel: not decided"];
for (const mark of DUELS) shownAs[mark] = (row) => all(row, "marks").some((marks) => marks?.includes(mark));

function textOf(row) {
  return [row.id, of(row, "category"), of(row, "instruction"), ...of(row, "tags"), ...all(row, "error"), ...(row.replies || [])].join(" ").toLowerCase();
}

async function loadReplies() {
  if (table.replies) return;
  const ours = table;
  const loaded = await Promise.all(ours.runs.map((run) => imgedit.load("replies", run.key)));
  for (const row of ours.rows)
    row.replies = row.places.flatMap((index, place) => (index < 0 ? [] : loaded[place][index]
      .flatMap((seed) => seed[1].map(([, , text]) => text))));
  ours.replies = loaded;
}

const FILTERS = ["category", "tag", "difficulty", "status", "low", "high", "search"];

function chosenRows(measure) {
  const [category, tag, difficulty, status, low, high, search] = FILTERS.map((name) => state.get(name) || "");
  const wanted = search.trim().toLowerCase();
  const isWithin = (number) => (low === "" || number >= Number(low)) && (high === "" || number <= Number(high));
  const decimals = table.runs.map((run) => measureOf(run, measure)?.decimals ?? 2)[0];
  return table.rows.filter((row) =>
    (!category || of(row, "category") === category) &&
    (!tag || of(row, "tags").includes(tag)) &&
    (!difficulty || of(row, "difficulty") === difficulty) &&
    (!status || shownAs[status](row)) &&
    ((low === "" && high === "") || values(row, measure).some((number) => isWithin(Number(number.toFixed(decimals))))) &&
    (!wanted || textOf(row).includes(wanted)));
}

// What pairs are sorted by, with its heading. Large amounts come first, but of a mean the smallest.
const orders = {
  mean: (measure) => (row) => mean(values(row, measure)),
  spread: (measure) => (row) => spread(row, measure),
  difference: (measure) => (row) => difference(row, measure),
  won: () => won,
  disagreement: () => disagreement,
  change: () => change,
};

function pictureOf(items, name) {
  if (!name) return null;
  const [digest] = name.split(".");
  const base = `${items.url}/${name.slice(0, 2)}/`;
  return { full: base + name, thumbnail: `${base}${digest}.thumbnail.webp` };
}

function hex(base64) {
  return [...atob(base64)].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}

// An image of the pair itself, from the first run that has the pair.
function inputOf(row, name) {
  const place = row.places.findIndex((index) => index >= 0);
  return pictureOf(table.runs[place].items, name);
}

function sourcesOf(row) {
  const named = of(row, "sources") || [["source", of(row, "source")]];
  return named.filter(([, name]) => name).map(([label, name]) => ({ label, ...inputOf(row, name) }));
}

function editOf(row, place) {
  const index = row.places[place];
  const digest = index < 0 ? null : table.runs[place].items.edits[index];
  return digest ? pictureOf(table.runs[place].items, `${hex(digest)}.png`) : null;
}

// The edits that those of the runs were put against in duels, each once.
function othersOf(row) {
  const found = row.places.flatMap((index, place) => {
    const { items, label: name } = table.runs[place];
    const digest = items.others[index];
    const label = table.runs.length > 1 ? `baseline edit of ${name}` : "baseline edit";
    return digest ? [{ label, ...pictureOf(items, `${hex(digest)}.png`) }] : [];
  });
  return found.filter(({ full }, index) => found.findIndex((other) => other.full === full) === index);
}

function shownValue(row, place, measure) {
  const index = row.places[place];
  if (index < 0) return "not in this run";
  const number = value(row, place, measure);
  if (number !== null) return fixed(number, measureOf(table.runs[place], measure)?.decimals);
  return table.runs[place].items.status[index].replace("_", " ");
}

function runChoice(name, place) {
  return choice(name, table.runs.map((run) => [run.key, run.label]), table.runs[place].key);
}

async function showPairs() {
  const keys = chosenKeys();
  if (!keys.length) {
    drawn.key = "";
    const all = imgedit.list.filter((run) => !run.running).map((run) => run.key).slice(0, MOST_RUNS);
    draw(element("p", {}, "No run is chosen."), element("button", { type: "button", id: "all", onclick: () => go({ runs: all.join(",") }) }, `show ${all.length} runs`));
    return;
  }
  const key = address({ pair: "", edit: "" });
  if (drawn.key === key) return showPair(drawn.rows, drawn.measures);
  await loadTable(keys);
  if ((state.get("search") || "").trim()) await loadReplies();
  if (key !== address({ pair: "", edit: "" })) return;  // something else was chosen meanwhile
  const measures = measuresOf(table.runs);
  const measure = measures.includes(state.get("measure")) ? state.get("measure") : measures[0];
  const order = orders[state.get("order")] ? state.get("order") : "suite";
  const amount = orders[order]?.(measure);
  const isDown = (state.get("down") ?? (order === "mean" ? "0" : "1")) === "1";
  const rows = chosenRows(measure);
  if (amount) sorted(rows, amount, isDown);
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const page = Math.min(Math.max(Number(state.get("page")) || 1, 1), pages);
  const bar = pairControls(rows, measures, measure, order, isDown);
  const judges = new Set(table.runs.map((run) => `${run.judge} ${run.judge_recipe}`));
  const caution = judges.size > 1 ? element("p", { class: "quiet", id: "caution" }, "These runs have different judges, or judges with different parameters: their scores cannot be compared.") : null;
  const shown = rows.slice((page - 1) * PAGE, page * PAGE);
  const whole = pairTable(shown, measure, order, amount);
  const turn = (text, to) => element("button", { type: "button", disabled: to < 1 || to > pages, onclick: () => {
    go({ page: to === 1 ? "" : String(to) });
    main.scrollIntoView();
  } }, text);
  const pager = pages > 1 ? element("div", { class: "pager" }, turn("previous page", page - 1), `${page} of ${pages}`, turn("next page", page + 1)) : null;
  const body = rows.length ? element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Pairs by runs" }, whole) : element("p", {}, "No pair is left by these filters.");
  draw(...[bar, caution, tellOtherSources(), body, pager].filter(Boolean));
  drawn = { key, rows, measures };
  showPair(rows, measures);
}

function pairControls(rows, measures, measure, order, isDown) {
  const unique = (name) => [...new Set(table.rows.flatMap((row) => of(row, name === "tag" ? "tags" : name)))].filter(Boolean).sort();
  const filter = (name, text) => {
    const found = unique(name);
    return found.length > 1 || state.get(name) ? field(text, choice(name, [["", "all"], ...found.map((value) => [value, value])])) : null;
  };
  const several = table.runs.length > 1;
  const sortOptions = [["suite", "as in the suite"], ["mean", several ? "mean of the runs" : measure], ...(several ? [["spread", "spread between runs"], ["difference", "difference of two runs"]] : []), ...(haveDuels() ? [["won", "votes between two runs"]] : []),
    ...(table.runs.some((run) => run.further.length) ? [["disagreement", "disagreement of judges"]] : []), ["change", "change from the source"]];
  const down = element("button", { type: "button", id: "down", title: "turn the order round", onclick: () => go({ down: isDown ? "0" : "1", page: "" }) }, isDown ? "largest first ▼" : "smallest first ▲");
  const [first, last] = [0, table.runs.length - 1];
  const swap = () => {
    const [a, b] = compared().map((place) => table.runs[place].key);
    go({ a: b, b: a, page: "" });
  };
  const two = ["difference", "won"].includes(order) ? [field("of", runChoice("a", first)), element("button", { type: "button", id: "swap", title: "swap the two runs", onclick: swap }, "less"), field("and", runChoice("b", last))] : [];
  const isFiltered = FILTERS.some((name) => state.get(name));
  const clear = element("button", { type: "button", id: "clear", disabled: !isFiltered, onclick: () => go(Object.fromEntries([...FILTERS, "page"].map((name) => [name, ""]))) }, "clear filters");
  return element("div", { class: "choose", role: "group", "aria-label": "Choose pairs" },
    field("Measure", choice("measure", measures.map((name) => [name, name]), measures[0])),
    field("Sort by", choice("order", sortOptions, "suite", { down: "" })), ...two, order === "suite" ? null : down,
    filter("category", "Category"), filter("tag", "Tag"), filter("difficulty", "Difficulty"),
    field("Show", choice("status", [["", "all"], ["scored", "scored"], ["error", "errors"], ["near-copy", "near-copies"], ["reframed", "reframed"], ["composited", "composited"], ["leak", "leaks"], ...(table.runs.some((run) => run.duel) ? DUELS.map((mark) => [mark, mark]) : [])])),
    field(`${measure} from`, typed("low", { type: "number", step: "any" })), field("to", typed("high", { type: "number", step: "any" })),
    field("Search", typed("search", { type: "search", placeholder: "instruction, tags or replies" })), clear,
    element("output", { id: "count" }, `${rows.length} of ${table.rows.length} pairs`),
    copyButtons(() => copiedPairs(rows, measure, order)));
}

function amountName(order, measure) {
  if (!["difference", "won"].includes(order)) return { spread: "spread", disagreement: "judges differ by", change: "change" }[order] || "";
  const [first, last] = compared();
  const [one, other] = [table.runs[first].label, table.runs[last].label];
  return order === "won" ? `votes for ${one} against ${other}` : `${one} less ${other}`;
}

function copiedPairs(rows, measure, order) {
  const name = amountName(order, measure);
  const amount = orders[order]?.(measure);
  const extra = (row) => (name ? [amount(row) ?? ""] : []);
  return [["pair", "category", ...(name ? [name] : []), ...table.runs.map((run) => run.label)],
    ...rows.map((row) => [row.id, of(row, "category"), ...extra(row), ...table.runs.map((_, place) => value(row, place, measure) ?? "")])];
}

function pairTable(shown, measure, order, amount) {
  const name = amountName(order, measure);
  const view = (row, place) => go({ pair: row.id, edit: place ? String(place + 1) : "" }, true);
  // By keyboard a pair is opened by its name.
  const thumb = (picture, text, onclick) => element("button", { type: "button", class: "thumb", tabindex: "-1", title: "look closer", onclick }, element("img", { src: picture.thumbnail, alt: text, loading: "lazy" }));
  const sources = (row) => {
    const found = sourcesOf(row);
    const thumbs = found.map((picture) => thumb(picture, `${picture.label} of ${row.id}`, () => view(row, 0)));
    if (!of(row, "sources")) return element("td", {}, ...thumbs);
    return element("td", {}, element("div", { class: "sources" }, ...thumbs.map((node, index) => element("figure", {}, node, element("figcaption", {}, found[index].label)))));
  };
  const edit = (row, run, place) => {
    const picture = editOf(row, place);
    return element("td", {}, picture && thumb(picture, `${run.label} of ${row.id}`, () => view(row, place)), element("b", {}, shownValue(row, place, measure)), ...marksOf(row, place).map(markOf));
  };
  const line = (row) => element("tr", { "data-pair": row.id },
    element("th", { scope: "row" }, element("a", { class: "id", href: address({ pair: row.id, edit: "" }) }, row.id),
      element("span", { class: "quiet" }, [of(row, "category"), of(row, "difficulty"), ...of(row, "tags")].filter(Boolean).join(" · ")), element("p", {}, of(row, "instruction"))),
    name ? element("td", { class: "amount" }, element("b", {}, fixed(amount(row)))) : null,
    sources(row),
    ...table.runs.map((run, place) => edit(row, run, place)));
  const head = element("tr", {}, element("th", { scope: "col" }, "pair"), name ? element("th", { scope: "col" }, name) : null, element("th", { scope: "col" }, "source"),
    ...table.runs.map((run) => element("th", { scope: "col" }, run.label, meanOf(run, measure))));
  const whole = element("table", { class: "models" }, element("thead", {}, head), element("tbody", {}, ...shown.map(line)));
  whole.style.setProperty("--thumb", table.runs.length < 3 ? "15rem" : table.runs.length < 5 ? "11rem" : "7.5rem");
  whole.addEventListener("keydown", (event) => stepFocus(event, [...whole.querySelectorAll("a.id")]));
  return whole;
}

function meanOf(run, measure) {
  const found = measureOf(run, measure);
  const mean = `mean ${fixed(found?.mean, found?.decimals)}${found?.ci95 ? ` (${interval(found)})` : ""}`;
  return element("small", {}, run.duel ? `${mean} · ${run.duel}` : mean);
}

function showPair(rows, measures) {
  const id = state.get("pair");
  const row = id && table.rows.find((candidate) => candidate.id === id);
  if (!row) return pairView.close();
  const position = rows.indexOf(row);
  const measure = measures.includes(state.get("measure")) ? state.get("measure") : measures[0];
  const step = (by) => rows[position + by] && go({ pair: rows[position + by].id });
  const edits = table.runs.map((run, place) => {
    const index = row.places[place];
    return {
      label: run.label,
      picture: editOf(row, place),
      score: `${measure} ${shownValue(row, place, measure)}`,
      marks: marksOf(row, place),
      error: index < 0 ? "this pair is not in this run" : run.items.error[index] || null,
      read: () => readAnswers(run, index),
    };
  });
  const reference = inputOf(row, of(row, "reference"));
  const pictures = [...sourcesOf(row), ...(reference ? [{ label: "reference", ...reference }] : []), ...othersOf(row)];
  const near = [rows[position - 1], rows[position + 1]].filter(Boolean)
    .flatMap((other) => [...sourcesOf(other), ...table.runs.map((_, place) => editOf(other, place))]).filter(Boolean).map((picture) => picture.full);
  pairView.open({
    id, pictures, edits, preload: near,
    instruction: of(row, "instruction"),
    place: position < 0 ? "not among the chosen pairs" : `${position + 1} of ${rows.length}`,
    facts: [["category", of(row, "category")], ["difficulty", of(row, "difficulty")], ["tags", of(row, "tags").join(", ")], ...votesOf(row)].filter(([, text]) => text),
    measures: measures.map((name) => ({ name, values: table.runs.map((run, place) => fixed(value(row, place, name), measureOf(run, name)?.decimals)) })),
  }, Number(state.get("edit") || 1) - 1, {
    step,
    choose: (place) => go({ edit: place ? String(place + 1) : "" }),
    close: () => {
      if (state.get("pair")) go({ pair: "", edit: "" });
      main.querySelector(`[data-pair="${id}"] a`)?.focus();
    },
  });
}

async function readAnswers(run, index) {
  if (index < 0) return [];
  const seeds = (await imgedit.load("replies", run.key))[index];
  return seeds.flatMap(([seed, said, size, seconds, how, ...keys]) => {
    const prefix = seeds.length > 1 ? `seed ${seed}, ` : "";
    const replies = said.map(([judge, call, text]) => ({ title: `${prefix}${judge || "judge"}${call ? `, ${call}` : ""}`, text }));
    if (!size) return replies;
    const made = [`${size}, ${seconds} s, seed ${seed}`, ...(how ? [how] : []), ...keys.map((key) => `imgedit explain ${key}`)];
    return [...replies, { title: `${prefix}how it was made`, text: made.join("\n") }];
  });
}

// The page

function show() {
  state = new URLSearchParams(location.hash.slice(1));
  const isPairs = state.get("view") === "pairs";
  for (const [id, view, isHere] of [["to-runs", "", !isPairs], ["to-pairs", "pairs", isPairs]]) {
    const link = document.getElementById(id);
    link.href = address({ view, pair: "", edit: "", only: view ? state.get("only") || "" : "" });
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!isPairs) pairView.close();
  const shown = isPairs ? showPairs() : showRuns();
  Promise.resolve(shown).catch((error) => main.replaceChildren(element("p", { class: "error" }, String(error.message))));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select, textarea") || pairView.parts.dialog?.open) return;
  const box = document.getElementById("search") || document.getElementById("find");
  if (!box) return;
  event.preventDefault();
  box.focus();
});
window.addEventListener("hashchange", show);
