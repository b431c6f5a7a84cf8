// What happened, the newest first, in the frontend's own words.
import { find, keyed, make } from "./dom";
import type { Events } from "./documents";
import { time } from "./format";

interface Entry {
  at: number;
  text: string;
  warning: boolean;
  mark: boolean;
}

export function show_events(events: Events): void {
  const entries: Entry[] = events.log.map(([at, text, warning]) => ({ at, text, warning, mark: false }));
  for (const [at, epoch, reason] of events.reorganisations)
    entries.push({ at, text: `Reorganisation, epoch ${epoch}: ${reason}`, warning: false, mark: true });
  // Of one moment, what was told later is further up.
  entries.reverse();
  entries.sort((a, b) => b.at - a.at);
  keyed(
    find("events"),
    entries,
    (one) => `${one.at} ${one.text}`,
    (one) => {
      const item = make("li", one.mark ? "mark" : one.warning ? "warning" : "");
      const when = make("time", "", time(one.at));
      when.dateTime = new Date(one.at * 1000).toISOString();
      item.append(when, make("span", "kind", one.mark ? "◆" : one.warning ? "Warning" : ""), make("span", "", one.text));
      return item;
    },
    () => undefined,
  );
}
