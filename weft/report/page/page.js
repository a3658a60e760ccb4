"use strict";
// Draws the charts. `data` is what the page holds: runs, and charts made of series. A series has its run, its
// style (raw, line, marks, rings), and points as columns: step, tokens, hours, y.
const data = JSON.parse(document.getElementById("data").textContent);
const many = data.runs.length > 1;
const view = { x: "step", log: false, range: null, hidden: new Set() };
const kLeft = 54, kRight = 12, kTop = 10, kBottom = 40;

const escaped = text => String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const colour = series => `var(--c${series.colour % 6})`;
const patterns = ["", "5 3", "1.5 3.5", "9 3 2 3"];  // of lines that would otherwise look the same
const dash = series => series.pattern % 4 ? ` stroke-dasharray="${patterns[series.pattern % 4]}"` : "";

function short(v) {
  const size = Math.abs(v);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= 10 * unit || (size >= unit && unit > 1e3)) return +(v / unit).toPrecision(4) + name;
  return size !== 0 && size < 1e-3 ? v.toExponential(1).replace(".0e", "e") : String(+v.toPrecision(5));
}
const digits = v => v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(3)
  : Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(5));
function duration(hours) {
  const s = Math.round(hours * 3600);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
  return Math.floor(s / 3600) + " h " + Math.floor(s / 60) % 60 + " min";
}

function linearTicks(low, high, count) {
  const rough = 0.7 * (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(i * step);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
    for (const f of [1, 2, 5]) ticks.push(f * 10 ** power);
  const inside = ticks.filter(t => t >= low * 0.999 && t <= high * 1.001);
  return inside.length > 7 ? inside.filter(t => Number.isInteger(Math.round(1e6 * Math.log10(t)) / 1e6)) : inside;
}

// The range of x over all charts, so that they can be read together.
function wholeRange() {
  let low = Infinity, high = -Infinity;
  for (const chart of data.charts)
    for (const series of chart.series)
      if (!view.hidden.has(series.run))
        for (const x of series[view.x]) {
          if (view.log && x <= 0) continue;
          low = Math.min(low, x);
          high = Math.max(high, x);
        }
  if (!(low < high)) return low === high ? [low === 0 ? 0 : low * 0.9, low * 1.1 + 1e-9] : [0, 1];
  return [view.log ? low : view.x === "step" && low < 0.05 * high ? 0 : low, high];
}

// Hours are the data's unit of time; a short run's axis is in minutes or seconds.
function xUnit(high) {
  if (view.x === "step") return [1, "step"];
  if (view.x === "tokens") return [1, "tokens"];
  return high > 96 ? [24, "days"] : high > 2 ? [1, "hours"] : high > 2 / 60 ? [1 / 60, "minutes"] : [1 / 3600, "seconds"];
}

function xScale(width, [low, high]) {
  const f = view.log ? Math.log : v => v, a = f(low), b = f(high);
  const scale = x => kLeft + (f(x) - a) / (b - a) * (width - kLeft - kRight);
  scale.inverse = px => {
    const t = Math.min(1, Math.max(0, (px - kLeft) / (width - kLeft - kRight))), v = a + t * (b - a);
    return view.log ? Math.exp(v) : v;
  };
  const [unit] = xUnit(high);
  const count = Math.max(2, Math.floor(width / 80));
  scale.ticks = view.log ? logTicks(low / unit, high / unit).map(t => t * unit) : linearTicks(low / unit, high / unit, count).map(t => t * unit);
  return scale;
}

function yScale(chart, height, [left, right]) {
  let low = Infinity, high = -Infinity;
  const hold = y => { low = Math.min(low, y); high = Math.max(high, y); };
  for (const series of chart.series)
    if (series.style !== "raw" && !view.hidden.has(series.run))
      series[view.x].forEach((x, i) => { if (x >= left && x <= right) hold(series.y[i]); });
  if (low > high) [low, high] = [0, 1];
  const span = high - low;
  for (const level of chart.levels)  // one far away would press the curves flat
    if (level.value < high + 2 * span + 1e-9 && level.value > low - 2 * span - 1e-9) hold(level.value);
  if (chart.zero) hold(0);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low -= chart.zero ? 0 : room;
  high += room;
  const scale = y => kTop + (high - y) / (high - low) * (height - kTop - kBottom);
  scale.low = low;
  scale.high = high;
  scale.ticks = linearTicks(low, high, Math.max(3, Math.floor(height / 60)));
  return scale;
}

// The part of a series that is in sight, with a neighbour on each side for the lines that lead out of it.
function visible(series, [left, right]) {
  const xs = series[view.x], points = [];
  for (let i = 0; i < xs.length; ++i) {
    if (view.log && xs[i] <= 0) continue;
    if ((xs[i + 1] ?? xs[i]) < left || (xs[i - 1] ?? xs[i]) > right) continue;
    points.push(i);
  }
  return points;
}

function drawSeries(series, x, y, range) {
  const points = visible(series, range), top = kTop - 1000, at = i => [x(series[view.x][i]), Math.max(top, y(series.y[i]))];
  let svg = points.length < 2 ? "" :
    `<path class="curve ${series.style}" stroke="${colour(series)}"${dash(series)} d="M${points.map(i => at(i).map(v => v.toFixed(1)).join(",")).join("L")}"/>`;
  const few = points.length < 120;
  if (series.style === "marks" && few || series.style === "line" && points.length === 1)
    for (const i of points) svg += `<circle cx="${at(i)[0].toFixed(1)}" cy="${at(i)[1].toFixed(1)}" r="3.6" fill="${colour(series)}"/>`;
  if (series.style === "rings" && few)
    for (const i of points) svg += `<circle class="ring" cx="${at(i)[0].toFixed(1)}" cy="${at(i)[1].toFixed(1)}" r="3.4" stroke="${colour(series)}"/>`;
  return svg;
}

function drawLevels(chart, y, width) {
  let svg = "", taken = [];
  for (const level of chart.levels) {
    if (view.hidden.has(level.run) || level.value < y.low || level.value > y.high) continue;
    const at = y(level.value);
    let label = at - 6;
    while (taken.some(t => Math.abs(t - label) < 14)) label -= 14;
    taken.push(label);
    svg += `<line class="level" x1="${kLeft}" x2="${width - kRight}" y1="${at.toFixed(1)}" y2="${at.toFixed(1)}"${level.run >= 0 && many ? ` style="stroke:var(--c${level.run % 6})"` : ""}/>`;
    svg += `<text class="level-name" x="${width - kRight - 4}" y="${label.toFixed(1)}" text-anchor="end">${escaped(level.name)} ${short(level.value)}</text>`;
  }
  return svg;
}

function draw(chart) {
  const box = document.getElementById("plot-" + chart.id), width = box.clientWidth, height = box.clientHeight;
  const range = view.range ?? wholeRange(), x = xScale(width, range), y = yScale(chart, height, range);
  const bottom = height - kBottom, [unit, unitName] = xUnit(range[1]);
  let svg = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(chart.title)}"><clipPath id="clip-${chart.id}"><rect x="${kLeft - 5}" y="${kTop - 6}" width="${width - kLeft - kRight + 10}" height="${bottom - kTop + 11}"/></clipPath>`;
  for (const t of y.ticks)
    svg += `<line class="grid" x1="${kLeft}" x2="${width - kRight}" y1="${y(t).toFixed(1)}" y2="${y(t).toFixed(1)}"/><text x="${kLeft - 8}" y="${(y(t) + 4).toFixed(1)}" text-anchor="end">${short(t)}</text>`;
  let lastLabel = -100;
  for (const t of x.ticks) {
    const at = x(t), label = Math.min(at, width - 20);
    svg += `<line class="axis" x1="${at.toFixed(1)}" x2="${at.toFixed(1)}" y1="${bottom}" y2="${bottom + 4}"/>`;
    if (label - lastLabel < 40) continue;
    lastLabel = label;
    svg += `<text x="${label.toFixed(1)}" y="${bottom + 17}" text-anchor="middle">${short(+(t / unit).toPrecision(6))}</text>`;
  }
  svg += `<line class="axis" x1="${kLeft}" x2="${width - kRight}" y1="${bottom}" y2="${bottom}"/><text x="${(kLeft + width - kRight) / 2}" y="${height - 4}" text-anchor="middle">${unitName}${view.log ? " (log scale)" : ""}</text>`;
  svg += `<g clip-path="url(#clip-${chart.id})">`;
  const shown = chart.series.filter(s => !view.hidden.has(s.run));
  for (const style of ["raw", "line", "marks", "rings"])
    for (const series of shown) if (series.style === style) svg += drawSeries(series, x, y, range);
  for (const skip of chart.skips) {
    if (view.hidden.has(skip.run) || !(skip[view.x] >= range[0] && skip[view.x] <= range[1])) continue;
    const at = x(skip[view.x]);
    svg += `<path class="skip" d="M${at.toFixed(1)},${bottom - 9}l5,9h-10z"/>`;
  }
  svg += drawLevels(chart, y, width) + "</g>";
  svg += `<line class="cursor" y1="${kTop}" y2="${bottom}"/><rect class="zoom" y="${kTop}" height="${bottom - kTop}"/></svg><div class="values"></div>`;
  box.innerHTML = svg;
  chart.drawn = { box, width, x, range };
}

function sign(series, c = colour(series)) {
  if (series.style === "line") return `<svg viewBox="0 0 28 10"><path class="curve line" stroke="${c}"${dash(series)} d="M1,5H27"/></svg>`;
  const circle = series.style === "rings" ? `<circle class="ring" cx="14" cy="5" r="3.4" stroke="${c}"/>` : `<circle cx="14" cy="5" r="3.6" fill="${c}"/>`;
  return `<svg viewBox="0 0 28 10"><path class="curve ${series.style}" stroke="${c}"${dash(series)} d="M1,5H27"/>${circle}</svg>`;
}

// The values nearest to the mouse, of every series that has one there.
function valuesAt(chart, px) {
  const { x, width } = chart.drawn, rows = [];
  let head = null, best = 24;
  for (const series of chart.series) {
    if (series.style === "raw" || view.hidden.has(series.run)) continue;
    const xs = series[view.x];
    let low = 0, high = xs.length;
    const target = x.inverse(px);
    while (low < high) { const middle = low + high >> 1; xs[middle] < target ? low = middle + 1 : high = middle; }
    const near = [low - 1, low].filter(i => i >= 0 && i < xs.length && (!view.log || xs[i] > 0))
      .map(i => [Math.abs(x(xs[i]) - px), i]).sort((a, b) => a[0] - b[0])[0];
    if (!near || near[0] > Math.max(24, width / 30)) continue;
    rows.push({ series, i: near[1], far: near[0] });
    if (near[0] <= best) { best = near[0]; head = { series, i: near[1] }; }
  }
  return { head, rows: rows.filter(row => row.series.style === "line" || row.far < 9) };
}

function showValues(chart, px) {
  const { box, width, x } = chart.drawn, panel = box.querySelector(".values"), { head, rows } = valuesAt(chart, px);
  if (!head) return hideValues();
  const at = x(head.series[view.x][head.i]);
  for (const other of data.charts) {
    const line = other.drawn.box.querySelector(".cursor"), there = other.drawn.x(head.series[view.x][head.i]);
    line.setAttribute("x1", there);
    line.setAttribute("x2", there);
    line.style.visibility = "visible";
  }
  const s = head.series, i = head.i;
  let html = `<div class="soft">step ${s.step[i].toLocaleString("en")} · ${short(s.tokens[i])} tokens · ${duration(s.hours[i])}</div>`;
  for (const row of rows) {
    const name = many ? data.runs[row.series.run] + (chart.names > 1 ? " · " + row.series.name : "") : row.series.name;
    html += `<div>${sign(row.series)}<span>${escaped(name)}</span><span>${digits(row.series.y[row.i])}</span></div>`;
  }
  for (const skip of chart.skips)
    if (!view.hidden.has(skip.run) && Math.abs(x(skip[view.x]) - px) < 5) {
      html += `<div class="bad">step ${skip.step}${many ? " of " + escaped(data.runs[skip.run]) : ""} was skipped: ${escaped(skip.reason)}</div>`;
      break;
    }
  panel.innerHTML = html;
  panel.style.left = at < width / 2 ? at + 12 + "px" : "";
  panel.style.right = at < width / 2 ? "" : width - at + 12 + "px";
  for (const other of document.querySelectorAll(".values")) other.style.visibility = other === panel ? "visible" : "hidden";
}
function hideValues() {
  for (const e of document.querySelectorAll(".values, .cursor")) e.style.visibility = "hidden";
}

function drawAll() {
  for (const chart of data.charts) draw(chart);
}

function watchMouse(chart) {
  const box = document.getElementById("plot-" + chart.id);
  let from = null;
  const px = event => event.clientX - box.getBoundingClientRect().left;
  box.addEventListener("pointermove", event => {
    const zoom = box.querySelector(".zoom");
    if (from === null) return showValues(chart, px(event));
    zoom.setAttribute("x", Math.min(from, px(event)));
    zoom.setAttribute("width", Math.abs(px(event) - from));
    zoom.style.visibility = "visible";
  });
  box.addEventListener("pointerleave", hideValues);
  box.addEventListener("pointerdown", event => { if (event.pointerType === "mouse" && event.button === 0) from = px(event); });
  window.addEventListener("pointerup", event => {
    if (from === null) return;
    const ends = [from, px(event)].sort((a, b) => a - b).map(chart.drawn.x.inverse), wide = Math.abs(px(event) - from) > 8;
    from = null;
    if (wide) { view.range = ends; drawAll(); }
  });
  box.addEventListener("dblclick", () => { view.range = null; drawAll(); });
}

function legend(chart) {
  const seen = new Map();  // with several runs colour says which run, and the legend only what a style means
  for (const series of chart.series)
    if (series.style !== "raw" && !seen.has(series.name)) seen.set(series.name, series);
  chart.names = seen.size;
  if (seen.size < 2) return "";
  return [...seen.values()].map(s => `<span>${many ? sign(s, "var(--soft)") : sign(s)}${escaped(s.name)}</span>`).join("");
}

function tools() {
  const bar = document.getElementById("tools");
  const button = (text, pressed, click) => {
    const b = document.createElement("button");
    b.innerHTML = text;
    b.setAttribute("aria-pressed", pressed());
    b.addEventListener("click", () => {
      click();
      drawAll();
      for (const other of bar.querySelectorAll("button")) other.update();
    });
    b.update = () => b.setAttribute("aria-pressed", pressed());
    return b;
  };
  const group = (name, buttons) => {
    const span = document.createElement("span");
    span.className = name;
    span.append(...buttons);
    bar.append(span);
  };
  bar.append("Horizontal axis");
  group("choice", [["step", "Steps"], ["tokens", "Tokens"], ["hours", "Time"]].map(([x, text]) =>
    button(text, () => view.x === x, () => { view.x = x; view.range = null; })));
  group("choice", [button("Log scale", () => view.log, () => { view.log = !view.log; view.range = null; })]);
  if (many)
    group("runs", data.runs.map((name, run) => button(`<i class="dot" style="background:var(--c${run % 6})"></i>${escaped(name)}`,
      () => !view.hidden.has(run), () => view.hidden.has(run) ? view.hidden.delete(run) : view.hidden.add(run))));
  const hint = document.createElement("span");
  hint.className = "hint";
  hint.textContent = "Drag across a plot to zoom, double-click to see all";
  bar.append(hint);
}

tools();
for (const chart of data.charts) {
  const key = legend(chart);
  document.getElementById("legend-" + chart.id).innerHTML = key;
  watchMouse(chart);
}
drawAll();
window.addEventListener("resize", drawAll);
