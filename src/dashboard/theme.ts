// The theme: light, dark, or that of the system. The choice is stored in the browser (theme_first.ts).
import { find } from "./dom";

const NEXT: Record<string, string> = { "": "light", light: "dark", dark: "" };
const WORDS: Record<string, string> = { "": "system", light: "light", dark: "dark" };

export function watch_theme(changed: () => void): void {
  const button = find<HTMLButtonElement>("theme");
  const show = (): void => {
    button.textContent = `Theme: ${WORDS[document.documentElement.dataset.theme ?? ""]}`;
    changed();
  };
  button.addEventListener("click", () => {
    const next = NEXT[document.documentElement.dataset.theme ?? ""] ?? "";
    if (next) {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("gpulet.theme", next);
    } else {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("gpulet.theme");
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show();
}
