"""The style and the script of the HTML page: what costtrace.report.html puts its tables, charts and data into.

The script builds every text from data with textContent, never as markup, and asks for nothing from any network.
"""

STYLE = """
:root { color-scheme: light dark; --fg: #1a1a1a; --bg: #fff; --soft: #666666; --line: #d8d8d8; --row: #f4f6f8;
  --accent: #0b5cad; --compute: #3a8f4a; --memory: #c98a00; --vector: #1f8fa8; --transcendental: #a04fb0;
  --integer: #4f6fd0; --link: #c0392b; --group: #b9c2cc; }
@media screen and (prefers-color-scheme: dark) { :root { --fg: #e6e6e6; --bg: #16181b; --soft: #9aa0a6; --line: #3a3f45;
  --row: #20242a; --accent: #6db3ff; --compute: #4fae61; --memory: #d9a520; --vector: #35a8c2;
  --transcendental: #bb74c9; --integer: #7d97ea; --link: #e26a5c; --group: #4a525b; } }
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--fg); background: var(--bg); margin: 1.5rem auto;
  max-width: 92rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .figures { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; }
.figures b { font-size: 1.15rem; display: block; font-weight: 600; }
select { max-width: 100%; } .icicle { overflow-x: auto; } .icicle svg { min-width: 38rem; }
select, button { font: inherit; color: inherit; background: var(--row); border: 1px solid var(--line);
  border-radius: 4px; padding: .15rem .5rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child, .left { text-align: left; }
.sortable th:first-child, td.part { position: sticky; left: 0; background: var(--bg); }
td.left { white-space: normal; min-width: 12rem; } tbody tr:hover, tbody tr:hover td.part { background: var(--row); }
th button { border: 0; background: none; padding: 0; font-weight: 600; cursor: pointer; text-align: inherit; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tr.stage td { font-weight: 600; background: var(--row); }
tr.stage span { display: inline-block; position: sticky; left: .5rem; white-space: normal;
  max-width: calc(100vw - 3.5rem); }
svg { display: block; width: 100%; height: auto; }
svg :focus-visible { outline: 2px solid var(--accent); }
.icicle svg text { fill: var(--fg); font: 12px system-ui, sans-serif; }
.icicle svg .cell-name { pointer-events: none; } .icicle svg .cell-name.on { fill: #111; }
.icicle rect.cell { stroke: var(--bg); cursor: pointer; }
.icicle rect.cell:focus { outline: none; stroke: var(--fg); stroke-width: 2; }
.chart { overflow-x: auto; } .chart svg { min-width: 38rem; }
.compute { fill: var(--compute); } .memory { fill: var(--memory); } .vector { fill: var(--vector); }
.transcendental { fill: var(--transcendental); } .integer { fill: var(--integer); } .link, .host { fill: var(--link); }
.group { fill: var(--group); }
.key { display: inline-block; width: .8rem; height: .8rem; vertical-align: -1px; margin: 0 .2rem 0 .8rem; }
.key.compute { background: var(--compute); } .key.memory { background: var(--memory); }
.key.vector { background: var(--vector); } .key.transcendental { background: var(--transcendental); }
.key.integer { background: var(--integer); } .key.link, .key.host { background: var(--link); }
@media screen { .named .called { display: none; } }
td.part { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
ul.findings { padding-left: 1.2rem; } .verdict-differs, .verdict-missing { color: var(--link); font-weight: 600; }
tr.more { display: none; } table.whole tr.more { display: table-row; }
nav.crumbs button { margin-right: .2rem; } [hidden] { display: none !important; }
@media print { :root { color-scheme: light; } body { margin: 0; max-width: none; }
  #picker, button, .screen, nav.crumbs { display: none; } th button { display: inline; }
  select { border: 0; background: none; appearance: none; }
  .key, tr.stage td { print-color-adjust: exact; } table { font-size: 9px; } th, td { padding: 1px 3px; }
  .wide, .chart, .icicle { overflow: visible; } .chart, .icicle, tr { break-inside: avoid; }
  .chart svg, .icicle svg { min-width: 0; } h2, h2 + p { break-after: avoid; }
  p:has(#picker) { display: none; } }
"""

SCRIPT = """
"use strict";
const NS = "http://www.w3.org/2000/svg", WIDTH = 1000, TALL = 24;
const sections = [...document.querySelectorAll("section[data-answer]")];

function made(name, text, attributes) {
  const out = document.createElementNS(NS, name);
  if (text) out.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) out.setAttribute(key, value);
  return out;
}

const picker = document.getElementById("picker");
function show() {
  sections.forEach((section, i) => { section.hidden = String(i) !== picker.value; });
  const icicle = sections[picker.value].querySelector(".icicle");
  if (!icicle.dataset.drawn) { icicle.dataset.drawn = "1"; zoomable(icicle); }
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.firstChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.v;
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("stage"));
        rows.sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
          return down ? -order : order;
        });
        const shown = rows.filter((row) => !row.classList.contains("more")).length;
        rows.forEach((row, k) => row.classList.toggle("more", k >= shown));
        body.append(...rows);
      }
    });
  });
}

function zoomable(box) {
  const tree = JSON.parse(box.querySelector("script").textContent);
  const svg = box.querySelector("svg"), crumbs = box.querySelector("nav"), by = box.querySelector("select");
  let path = [tree];
  const total = (node, k) => node.v ? node.v[k] : (node.sums ||= [])[k] ??= node.c.reduce((s, c) => s + total(c, k), 0);
  const text = (value, k) => {
    const unit = tree.units[k], steps = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"],
      [1, ""], [1e-3, "m"], [1e-6, "u"], [1e-9, "n"]];
    const [step, prefix] = steps.find(([size]) => value >= size) || [1, ""];
    return `${Number((value / step).toPrecision(4))} ${prefix}${unit}`;
  };
  function draw(focused) {
    const k = Number(by.value), focus = path.at(-1), whole = total(tree, k);
    svg.replaceChildren();
    let deepest = 0, count = 0;
    const cell = (node, x, width, depth, above) => {
      if (width < 0.4) return;
      deepest = Math.max(deepest, depth);
      const value = total(node, k), here = [...above, node];
      const share = whole ? (100 * value / whole).toFixed(1) : "0";
      const said = `${here.slice(1).map((n) => n.n).join("/") || node.n}: ${text(value, k)}, ${share} %`;
      const rect = made("rect", "", { x, y: depth * TALL, width, height: TALL - 1, class: `cell ${node.b || "group"}`,
        tabindex: count ? -1 : 0, role: "button", "aria-label": said });
      rect.append(made("title", said));
      const zoom = () => { path = here.length > 1 && here.at(-1) === focus ? here.slice(0, -1) : here; draw(true); };
      rect.addEventListener("click", zoom);
      rect.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoom(); }
      });
      svg.append(rect);
      count += 1;
      const room = Math.floor((width - 8) / 7);
      const named = node.b && node.b !== "group" ? "on" : "";
      if (room >= 3) {
        const name = node.n.length > room ? node.n.slice(0, room - 1) + "\\u2026" : node.n;
        svg.append(made("text", name, { x: x + 4, y: depth * TALL + 16, class: `cell-name ${named}` }));
      }
      let at = x;
      for (const child of node.c || []) {
        const part = value ? width * total(child, k) / value : 0;
        cell(child, at, part, depth + 1, here);
        at += part;
      }
    };
    cell(focus, 0, WIDTH, 0, path.slice(0, -1));
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${(deepest + 1) * TALL}`);
    box.dataset.cells = count;
    crumbs.replaceChildren(...path.map((node, i) => {
      const button = document.createElement("button");
      button.textContent = node.n;
      button.addEventListener("click", () => { path = path.slice(0, i + 1); draw(true); });
      return button;
    }));
    if (focused) svg.querySelector("rect").focus();
  }
  const beside = (cell, key) => {  // one tab stop; arrows go from cell to cell
    const [x, y, width] = ["x", "y", "width"].map((name) => Number(cell.getAttribute(name)));
    const row = y + TALL * ({ ArrowDown: 1, ArrowUp: -1 }[key] || 0);
    const some = [...svg.querySelectorAll(`rect[y="${row}"]`)].map((rect) => [Number(rect.getAttribute("x")), rect]);
    const fits = { ArrowRight: ([at]) => at > x, ArrowLeft: ([at]) => at < x, ArrowUp: ([at]) => at < x + 0.01,
      ArrowDown: ([at]) => at > x - 0.01 && at < x + width }[key];
    const found = fits ? some.filter(fits) : [];
    return found.length ? found.at(key === "ArrowRight" || key === "ArrowDown" ? 0 : -1)[1] : null;
  };
  by.addEventListener("change", () => draw(false));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && path.length > 1) { path = path.slice(0, -1); draw(true); }
    const next = event.target.matches("rect") && beside(event.target, event.key);
    if (next) {
      event.preventDefault();
      event.target.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    }
  });
  draw(false);
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("button.all").forEach((button) => button.addEventListener("click", () => {
  button.closest("section").querySelector("table.sortable").classList.add("whole");
  button.remove();
}));
picker.addEventListener("change", show);
show();
document.documentElement.dataset.ready = "1";
"""
