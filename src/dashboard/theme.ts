// The button of the theme: light, dark, or that of the system.
import { find } from "./dom";
import { choose_theme, chosen_theme, show_theme, system_is_dark } from "./theme_shown";

const NEXT: Record<string, string> = { "": "light", light: "dark", dark: "" };
const WORDS: Record<string, string> = { "": "system", light: "light", dark: "dark" };

export function watch_theme(changed: () => void): void {
  const button = find<HTMLButtonElement>("theme");
  const show = (): void => {
    show_theme();
    button.textContent = `Theme: ${WORDS[chosen_theme()]}`;
    changed();
  };
  button.addEventListener("click", () => {
    choose_theme(NEXT[chosen_theme()] ?? "");
    show();
  });
  system_is_dark.addEventListener("change", show);
  show();
}
