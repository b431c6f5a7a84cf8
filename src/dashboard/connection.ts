// The live connection to the frontend. Reconnects by itself, with exponential backoff.
import type { Events, Layout, Problem, Tick } from "./documents";

export interface Listener {
  layout(layout: Layout): void;
  problems(problems: Problem[]): void;
  events(events: Events): void;
  tick(tick: Tick): void;
  /** All documents will be sent again. */
  opened(): void;
  /** The reason, and the seconds until the next attempt. */
  lost(why: string, retry_s: number): void;
}

const SILENT_MS = 6000; // a tick comes every second
const MAX_BACKOFF_S = 10;

export function connect(listener: Listener): void {
  let source: EventSource | undefined;
  let failures = 0;
  let stopping = false;
  let watchdog = 0;
  let retry = 0;

  function close(): void {
    clearTimeout(watchdog);
    clearTimeout(retry);
    source?.close();
    source = undefined;
  }
  function lose(why: string): void {
    close();
    const backoff = Math.min(MAX_BACKOFF_S, 2 ** failures++);
    listener.lost(why, backoff);
    retry = window.setTimeout(open, backoff * 1000);
  }
  function restart_watchdog(): void {
    clearTimeout(watchdog);
    watchdog = window.setTimeout(() => lose("The frontend has sent nothing for 6 seconds."), SILENT_MS);
  }
  function open(): void {
    close();
    const made = new EventSource("/gpulet/events");
    source = made;
    const on = <T>(name: string, take: (document: T) => void): void =>
      made.addEventListener(name, (event) => {
        restart_watchdog();
        take(JSON.parse((event as MessageEvent<string>).data) as T);
      });
    made.addEventListener("open", () => {
      failures = 0;
      stopping = false;
      listener.opened();
      restart_watchdog();
    });
    on<Layout>("layout", (document) => listener.layout(document));
    on<Problem[]>("problems", (document) => listener.problems(document));
    on<Events>("events", (document) => listener.events(document));
    on<Tick>("tick", (document) => listener.tick(document));
    made.addEventListener("stopping", () => (stopping = true));
    made.addEventListener("error", () =>
      lose(stopping ? "The frontend has stopped." : "The connection to the frontend is lost."));
    watchdog = window.setTimeout(() => lose("The frontend does not respond."), SILENT_MS);
  }

  // A browser opens few connections to a server, so a hidden page closes its own.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
    } else if (!source) {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  open();
}
