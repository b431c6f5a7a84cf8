// Runs before the first paint, so that the page does not flash in the wrong theme.
const chosen = localStorage.getItem("gpulet.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
