// Runs before the first paint, so that the page does not flash in the wrong theme.
import { show_theme } from "./theme_shown";

show_theme();
