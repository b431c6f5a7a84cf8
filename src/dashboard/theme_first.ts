// Runs before the page is drawn, so that a chosen theme does not flash in from the other one.
const chosen = localStorage.getItem("gpulet.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
