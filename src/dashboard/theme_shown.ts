// The theme that the page shows. The choice is stored in the browser; without one it is the system's.
const KEY = "gpulet.theme";

export const system_is_dark = matchMedia("(prefers-color-scheme: dark)");

// "light", "dark", or "": that of the system.
export function chosen_theme(): string {
  const chosen = localStorage.getItem(KEY);
  return chosen === "light" || chosen === "dark" ? chosen : "";
}

export function choose_theme(theme: string): void {
  if (theme) localStorage.setItem(KEY, theme);
  else localStorage.removeItem(KEY);
}

export function show_theme(): void {
  document.documentElement.dataset.theme = chosen_theme() || (system_is_dark.matches ? "dark" : "light");
}
