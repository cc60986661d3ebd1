// The other charts: the graph of waits, scores over time, and what hosts did.
function drawWaits() {
  const { nodes, edges } = DATA.waits, chart = byId("waits-chart");
  if (nodes.length > 40) { chart.hidden = true; return Promise.resolve(); }
  const colours = { root: colour("alert"), knot: colour("alert"), waits: colour("c0") };
  const xs = nodes.map((n) => n.x), ys = nodes.map((n) => n.y);
  // A label has the room of its column; where that is no more than a word or two, the list below has the text.
  const letters = Math.floor(chart.clientWidth / (new Set(xs).size + 0.8) / 6.5);
  const words = (text) => (letters < 24 ? "" : `<br>${plain(text.length > letters ? `${text.slice(0, letters - 1)}…` : text)}`);
  // The arrows of a ring lead downwards from its upper half.
  const above = nodes.map((n) => n.kind === "knot" && n.y > 0);
  return Plotly.react(chart, [{
    type: "scatter", mode: "markers+text", x: xs, y: ys, hoverinfo: "text", cliponaxis: false,
    hovertext: nodes.map((n) => plain(`ranks ${n.ranks}: ${n.text}`)),
    text: nodes.map((n) => `<b>${plain(n.ranks.length > 22 ? `${n.ranks.slice(0, 21)}…` : n.ranks)}</b>${words(n.text)}`),
    textposition: above.map((up) => `${up ? "top" : "bottom"} center`),
    marker: { size: nodes.map((n) => Math.min(44, 22 + 3 * Math.log2(n.count + 1))), color: nodes.map((n) => colours[n.kind]), symbol: nodes.map((n) => (n.kind === "root" ? "diamond" : n.kind === "knot" ? "hexagon" : "circle")) },
  }], layout({
    height: Math.max(220, 110 * (Math.max(...ys) - Math.min(...ys) + 1.6)), showlegend: false, dragmode: false, margin: { l: 10, r: 10, t: 20, b: 30 },
    xaxis: { visible: false, range: [Math.min(...xs) - 0.9, Math.max(...xs) + 0.9], fixedrange: true },
    yaxis: { visible: false, range: [Math.min(...ys) - 0.8, Math.max(...ys) + (above.includes(true) ? 0.8 : 0.5)], fixedrange: true },
    annotations: edges.map((e) => ({
      x: nodes[e.awaited].x, y: nodes[e.awaited].y, ax: nodes[e.waiter].x, ay: nodes[e.waiter].y, xref: "x", yref: "y", axref: "x", ayref: "y", text: "",
      showarrow: true, arrowhead: 3, arrowsize: 1.2, arrowwidth: 1.8, arrowcolor: colour(e.concluded ? "wait" : "muted"), standoff: 18, startstandoff: 16,
    })),
  }), { ...CONFIG, displayModeBar: false });
}

function drawLines(element, chart) {
  const dashes = ["solid", "dash", "dot", "dashdot"];
  return Plotly.react(element, chart.lines.map((line, at) => ({
    type: "scatter", mode: line.x.length < 40 ? "lines+markers" : "lines", name: plain(line.name), x: line.x, y: line.y,
    line: { color: colour(`c${at % 8}`), width: 1.6, dash: dashes[Math.floor(at / 8) % 4] }, marker: { size: 4 },
  })), layout({
    title: { text: plain(chart.title), font: { size: 13 } }, height: 250, showlegend: chart.lines.length > 1, legend: { font: { size: 11 } },
    xaxis: { title: { text: "seconds", standoff: 4 } }, yaxis: { title: { text: plain(chart.unit), standoff: 4 }, rangemode: "tozero" }, margin: { l: 50, r: 10, t: 35, b: 40 },
  }), { ...CONFIG, displayModeBar: false });
}

function drawSmall(element) {
  const { chart, host } = element.dataset;
  return drawLines(element, chart === "scores" ? DATA.scores.over_time : DATA.hosts[Number(host)].charts[Number(chart)]);
}

async function drawAll() {
  await loadPlotly();
  if (DATA.timeline) await new TimelineChart(DATA.timeline).start();
  if (byId("waits-chart")) await drawWaits();
  // Charts of hosts may be many: each is drawn when somebody comes near it.
  const small = [...document.querySelectorAll("[data-chart]")], drawn = new Set();
  const draw = (element) => { drawn.add(element); return drawSmall(element); };
  const near = new IntersectionObserver((seen) => seen.forEach((one) => {
    if (one.isIntersecting && !drawn.has(one.target)) draw(one.target);
  }), { rootMargin: "600px" });
  small.forEach((element) => near.observe(element));
  window.addEventListener("beforeprint", () => small.filter((element) => !drawn.has(element)).forEach(draw));
  onTheme.push(() => { if (byId("waits-chart")) drawWaits(); drawn.forEach(drawSmall); });
  document.documentElement.dataset.drawn = "true";
}
// What can be read comes first.
requestAnimationFrame(() => setTimeout(() => drawAll().catch((error) => {
  const told = document.createElement("p");
  told.textContent = `The charts could not be drawn: ${error.message}`;
  byId("ranks").append(told);
  throw error;
}), 0));
