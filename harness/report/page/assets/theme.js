"use strict";
// Light or dark: as the system says, until somebody chooses.
const themeButton = document.getElementById("theme");
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
const onTheme = [];
function showTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Show this page ${isDark() ? "light" : "dark"}`);
  for (const draw of onTheme) draw();
}
themeButton.hidden = false;
themeButton.addEventListener("click", () => showTheme(isDark() ? "light" : "dark"));
prefersDark.addEventListener("change", () => showTheme());
// Paper is light, and charts have their colours in them.
let onScreen;
window.addEventListener("beforeprint", () => {
  onScreen = document.documentElement.dataset.theme;
  showTheme("light");
});
window.addEventListener("afterprint", () => {
  if (!onScreen) delete document.documentElement.dataset.theme;
  showTheme(onScreen);
});
showTheme();
