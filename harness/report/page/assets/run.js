// Jobs of a run by outcome and by name; a link to a verdict opens it.
const filters = document.getElementById("filters");
const rows = [...document.querySelectorAll("tr.job")];
function filter() {
  const wanted = new Set([...filters.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value));
  const text = document.getElementById("job-search").value.trim().toLowerCase();
  for (const row of rows) row.hidden = !wanted.has(row.dataset.outcome) || !row.textContent.toLowerCase().includes(text);
  document.getElementById("jobs-shown").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
}
function openVerdict() {
  const verdict = location.hash && document.getElementById(location.hash.slice(1));
  if (verdict && verdict.tagName === "DETAILS") { verdict.open = true; verdict.scrollIntoView(); }
}
filters.hidden = false;
filters.addEventListener("input", filter);
filters.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", openVerdict);
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
filter();
openVerdict();
document.documentElement.dataset.drawn = "true";
