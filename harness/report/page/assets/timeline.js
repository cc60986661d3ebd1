// The timeline: a row a rank.  Only what is in view is drawn, and what is narrower than a
// pixel together with its neighbours, so that rows of thousands of operations stay quick.
const PITCH = 24;
const LANES = { operation: 0, wait: 0.24, section: -0.3, input: -0.3, update: -0.3, "garbage collection": 0.38 };
const WIDTHS = { operation: 9, wait: 3, section: 4, input: 4, update: 4, "garbage collection": 3 };
const MARKS = { exception: ["x", "alert"], exit: ["square", "muted"], stacks: ["line-ns-open", "muted"], kernel: ["triangle-down", "alert"], fault: ["star", "alert"] };

class TimelineChart {
  constructor(data) {
    this.data = data;
    this.chart = byId("timeline-chart");
    this.end = Math.max(data.end_us, 1);
    this.open = new Set(data.open);
    this.groups = [...new Set(data.activities.filter((a) => a.kind === "operation").map((a) => a.group))];
    this.ofRow = data.rows.map(() => []);
    data.row.forEach((row, span) => this.ofRow[row].push(span));
    this.matching = null;
    this.chosen = -1;
    this.range = [-0.01 * this.end, 1.02 * this.end];
  }

  colourOf(activity) {
    if (activity.kind === "operation") {
      const at = this.groups.indexOf(activity.group);
      return colour(at < 7 ? `c${at}` : "c7");
    }
    return colour({ wait: "wait", input: "input", update: "section", section: "section" }[activity.kind] || "collection");
  }

  label(span) {
    const d = this.data, a = d.activities[d.activity[span]], row = d.rows[d.row[span]];
    const seq = d.seq[span] >= 0 ? ` #${d.seq[span]}` : "";
    const of = a.group ? ` of ${a.group}` : "";
    const length = d.length[span] < 0 ? "end not recorded" : `${seconds(d.length[span])}${this.open.has(span) ? ", not ended" : ""}`;
    return [`rank ${row.rank}: ${a.kind === "operation" || a.kind === "wait" ? "" : `${a.kind} `}${a.name}${seq}${of}`, a.place, `${length}, from ${seconds(d.begin[span])}`].filter(Boolean);
  }

  // Segments of one colour, each with points on it that can be hovered.
  traces() {
    const d = this.data, [from, to] = this.range;
    const width = Math.max(this.chart.clientWidth - 120, 200), pixel = (to - from) / width;
    const kinds = new Map();
    const last = new Map();
    for (let span = 0; span < d.row.length; span += 1) {
      const begin = d.begin[span], length = Math.max(d.length[span], 0);
      if (begin > to || begin + length < from) continue;
      const a = d.activities[d.activity[span]];
      const fits = !this.matching || this.matching.has(span);
      const open = this.open.has(span);
      const key = fits ? `${a.kind}|${open ? "open" : this.colourOf(a)}` : `${a.kind}|faded`;
      if (!kinds.has(key)) kinds.set(key, { a, fits, open, x: [], y: [], spans: [] });
      const lane = `${d.row[span]}|${key}`;
      if (length < pixel && last.has(lane) && begin < last.get(lane)) continue;
      const stop = begin + Math.max(length, 1.5 * pixel);
      last.set(lane, begin + pixel);
      const into = kinds.get(key), y = d.row[span] + LANES[a.kind];
      const first = Math.max(begin, from), final = Math.min(stop, to);
      const points = Math.min(60, Math.max(1, Math.round((final - first) / pixel / 30)));
      for (let at = 0; at <= points; at += 1) {
        into.x.push((first + ((final - first) * at) / points) / 1e6);
        into.y.push(y);
        into.spans.push(span);
      }
      into.x.push(null); into.y.push(null); into.spans.push(-1);
    }
    const found = [];
    for (const one of kinds.values()) {
      const name = one.a.kind === "operation" ? one.a.group : one.a.kind;
      found.push({
        type: "scatter", mode: "lines", x: one.x, y: one.y, customdata: one.spans, showlegend: false,
        name: plain(one.open ? `${name}, not ended` : name),
        line: { color: !one.fits ? colour("faded") : one.open ? colour("alert") : this.colourOf(one.a), width: WIDTHS[one.a.kind], simplify: false },
        text: one.fits ? one.spans.map((span) => (span < 0 ? "" : this.label(span).map(plain).join("<br>"))) : undefined,
        hoverinfo: one.fits ? "text" : "skip",
      });
    }
    return [...found, ...this.moments(), ...this.legend()];
  }

  moments() {
    const rows = new Map(this.data.rows.map((row, at) => [row.rank, at]));
    const kinds = new Map();
    for (const moment of this.data.moments) {
      if (!MARKS[moment.kind]) continue;
      const y = rows.has(moment.rank) ? rows.get(moment.rank) : -0.7;
      if (!kinds.has(moment.kind)) kinds.set(moment.kind, { x: [], y: [], text: [] });
      const into = kinds.get(moment.kind);
      into.x.push(moment.at_us / 1e6); into.y.push(y);
      into.text.push(plain(`${moment.rank === null ? moment.host || "job" : `rank ${moment.rank}`}: ${moment.text}`.slice(0, 300)));
    }
    return [...kinds].map(([kind, one]) => ({
      type: "scatter", mode: "markers", name: kind, x: one.x, y: one.y, text: one.text, hoverinfo: "text", customdata: one.x.map(() => -1),
      marker: { symbol: MARKS[kind][0], size: 8, color: colour(MARKS[kind][1]), line: { width: 1.5, color: colour(MARKS[kind][1]) } },
    }));
  }

  legend() {
    const kinds = new Map();
    for (const a of this.data.activities) {
      const name = a.kind === "operation" ? (this.groups.indexOf(a.group) < 7 ? a.group || "operations" : "other groups") : a.kind;
      if (!kinds.has(name)) kinds.set(name, this.colourOf(a));
    }
    if (this.open.size) kinds.set("not ended", colour("alert"));
    return [...kinds].map(([name, of]) => ({ type: "scatter", mode: "lines", x: [null], y: [null], name: plain(name), line: { color: of, width: 7 }, hoverinfo: "skip" }));
  }

  layout() {
    const rows = this.data.rows;
    const captures = this.data.moments.filter((one) => one.kind === "capture");
    const begin = new Date(this.data.begin_wall_ns / 1e6).toISOString().replace("T", " ").slice(0, 19);
    // Where two names fill the width, the legend has lines of its own above the rows.
    const narrow = this.chart.clientWidth < 600;
    const named = this.legend().length + new Set(this.data.moments.map((one) => one.kind)).size;
    const above = narrow ? 24 + 19 * Math.ceil(named / 2) : 40;
    return layout({
      height: 70 + above + PITCH * (rows.length + 1), hovermode: "closest", dragmode: "pan", uirevision: "kept",
      margin: { l: narrow ? 40 : 60, r: 15, t: above, b: 45 },
      legend: { orientation: "h", y: 1, yanchor: "bottom", ...(narrow && { font: { size: 11 }, entrywidth: 100, x: 0, itemwidth: 30 }) },
      xaxis: { title: { text: `seconds since ${begin} UTC` }, range: this.range.map((at) => at / 1e6) },
      yaxis: {
        range: [rows.length - 0.4, -0.9], fixedrange: true, tickvals: rows.map((_, at) => at), zeroline: false, gridcolor: colour("faded"),
        ticktext: rows.map((row) => { const text = plain(row.ranks.length > 14 ? `${row.ranks.slice(0, 13)}…` : row.ranks); return row.role === "culprit" ? `<b>${text} ◀</b>` : text; }),
      },
      shapes: captures.map((one) => ({ type: "line", x0: one.at_us / 1e6, x1: one.at_us / 1e6, yref: "paper", y0: 0, y1: 1, line: { color: colour("alert"), width: 1.5, dash: "dot" } })),
      annotations: captures.map((one) => ({ x: one.at_us / 1e6, xanchor: "right", yref: "paper", y: 0, yanchor: "bottom", showarrow: false, text: "capture ", font: { color: colour("alert") } })),
    });
  }

  draw() { return Plotly.react(this.chart, this.traces(), this.layout(), CONFIG); }

  look(from, to) {
    this.range = [Math.min(from, to - 10), to];
    return this.draw();
  }

  zoom(factor) {
    const [from, to] = this.range, middle = (from + to) / 2, half = ((to - from) / 2) * factor;
    return this.look(middle - half, middle + half);
  }

  whole() { return this.look(-0.01 * this.end, 1.02 * this.end); }

  // Begins of operations, the latest last.
  operations() {
    const { activities, activity, begin } = this.data;
    return begin.filter((_, span) => activities[activity[span]].kind === "operation").sort((a, b) => a - b);
  }

  // The last operations: the time before the latest begin, and what stands still behind it.
  beforeEnd() {
    const begins = this.operations();
    const latest = begins[begins.length - 1] || 0, some = begins[Math.max(0, begins.length - 12 * this.data.rows.length)] || 0;
    const span = Math.max(latest - some, this.end / 1000);
    return this.look(some - 0.05 * span, Math.min(this.end * 1.02, latest + span));
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    this.matching = null;
    if (wanted) {
      const number = /^#?(\d+)$/.exec(wanted), d = this.data;
      const fits = d.activities.map((a) => `${a.name} ${a.group} ${a.place} ${a.kind}`.toLowerCase().includes(wanted));
      this.matching = new Set();
      d.row.forEach((_, span) => { if (fits[d.activity[span]] || (number && d.seq[span] === Number(number[1]))) this.matching.add(span); });
    }
    byId("timeline-found").textContent = this.matching ? `${this.matching.size} found` : "";
    return this.draw();
  }

  step(by) {
    const row = Number(byId("timeline-row").value);
    const spans = this.matching ? [...this.matching].sort((a, b) => this.data.begin[a] - this.data.begin[b]) : this.ofRow[row];
    if (!spans.length) return;
    const at = spans.indexOf(this.chosen);
    this.choose(spans[at < 0 ? (by > 0 ? 0 : spans.length - 1) : (at + by + spans.length) % spans.length], true);
  }

  // Show one stretch in words, and the parts of other ranks in the same collective.
  choose(span, move) {
    const d = this.data, box = byId("timeline-details");
    this.chosen = span;
    byId("timeline-row").value = String(d.row[span]);
    const a = d.activities[d.activity[span]];
    const lines = this.label(span);
    if (d.seq[span] >= 0) {
      const parts = [];
      d.row.forEach((row, other) => {
        const b = d.activities[d.activity[other]];
        if (d.seq[other] === d.seq[span] && b.group === a.group && b.kind === "operation") parts.push(other);
      });
      const first = Math.min(...parts.map((other) => d.begin[other]));
      lines.push(`All parts of #${d.seq[span]} of ${a.group}: ${parts.slice(0, 64).map((other) => `rank ${d.rows[d.row[other]].rank} ${d.activities[d.activity[other]].name} +${seconds(d.begin[other] - first)}`).join("; ")}`);
    }
    box.replaceChildren(...lines.map((line) => { const p = document.createElement("p"); p.textContent = line; return p; }));
    box.hidden = false;
    const [from, to] = this.range;
    if (move && (d.begin[span] < from || d.begin[span] > to)) this.look(d.begin[span] - (to - from) / 2, d.begin[span] + (to - from) / 2);
  }

  keys(event) {
    const [from, to] = this.range, part = (to - from) / 5;
    const acts = {
      ArrowLeft: () => this.look(from - part, to - part), ArrowRight: () => this.look(from + part, to + part),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.7), 0: () => this.whole(),
      ",": () => this.step(-1), ".": () => this.step(1),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  async start() {
    const rows = byId("timeline-row");
    this.data.rows.forEach((row, at) => rows.append(new Option(`rank ${row.rank}${row.role ? ` (${row.role})` : ""}`, at)));
    // A job that has stood for long is shown from where it came to stand.
    const latest = Math.max(0, ...this.operations().slice(-1));
    await (latest < this.end / 2 ? this.beforeEnd() : this.draw());
    this.chart.on("plotly_relayout", (change) => {
      const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
      if (from !== undefined && to !== undefined) this.look(from * 1e6, to * 1e6);
      else if (change["xaxis.autorange"]) this.whole();
    });
    this.chart.on("plotly_click", (event) => {
      const span = event.points[0].customdata;
      if (span >= 0) this.choose(span, false);
    });
    this.chart.addEventListener("keydown", (event) => this.keys(event));
    byId("timeline-tools").hidden = false;
    byId("timeline-search").addEventListener("input", (event) => this.search(event.target.value));
    byId("timeline-search").addEventListener("keydown", (event) => { if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1); });
    byId("timeline-previous").addEventListener("click", () => this.step(-1));
    byId("timeline-next").addEventListener("click", () => this.step(1));
    byId("timeline-whole").addEventListener("click", () => this.whole());
    byId("timeline-last").addEventListener("click", () => this.beforeEnd());
    onTheme.push(() => this.draw());
  }
}

function seconds(us) {
  const size = Math.abs(us);
  if (size < 1000) return `${us} µs`;
  return size < 1e6 ? `${(us / 1e3).toFixed(2)} ms` : `${(us / 1e6).toFixed(3)} s`;
}
