// The page's own data, its tree, and the library that charts are drawn with.
const DATA = JSON.parse(document.getElementById("hanglab-data").textContent);
const byId = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly takes some tags in its texts for its own: nothing of a job's is one.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

async function loadPlotly() {
  const packed = Uint8Array.from(atob(byId("plotly").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

function layout(more) {
  const axis = { gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12 }, hoverlabel: { align: "left", bgcolor: colour("raised"), bordercolor: colour("muted"), font: { color: colour("text") } },
    margin: { l: 50, r: 15, t: 35, b: 40 }, ...more,
    xaxis: { ...axis, ...(more.xaxis || {}) }, yaxis: { ...axis, ...(more.yaxis || {}) },
  };
}
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

const trees = () => document.querySelectorAll(".stack details");
if (byId("stack-tools")) {
  byId("stack-tools").hidden = false;
  byId("stacks-open").addEventListener("click", () => trees().forEach((one) => { one.open = true; }));
  byId("stacks-close").addEventListener("click", () => trees().forEach((one) => { one.open = false; }));
}
byId("save").hidden = false;
byId("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([byId("hanglab-data").textContent], { type: "application/json" }));
  link.download = "hanglab-page.json";
  link.click();
  // The browser fetches it when it comes to that: on a crowded machine, seconds later.
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
});
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
  });
}
