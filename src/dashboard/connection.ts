// The live connection to the frontend: opens itself again whenever it is lost, sooner at first.
import type { Events, Layout, Problem, Tick } from "./documents";

export interface Listener {
  layout(layout: Layout): void;
  problems(problems: Problem[]): void;
  events(events: Events): void;
  tick(tick: Tick): void;
  /** From now on everything comes anew. */
  opened(): void;
  /** Why, in words, and in how many seconds it is tried again. */
  lost(why: string, again_s: number): void;
}

const SILENT_MS = 6000; // a tick comes every second
const LONGEST_WAIT_S = 10;

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
    const again = Math.min(LONGEST_WAIT_S, 2 ** failures++);
    listener.lost(why, again);
    retry = window.setTimeout(open, again * 1000);
  }
  function heard(): void {
    clearTimeout(watchdog);
    watchdog = window.setTimeout(() => lose("The frontend has said nothing for 6 seconds."), SILENT_MS);
  }
  function open(): void {
    close();
    const made = new EventSource("/gpulet/events");
    source = made;
    const on = <T>(name: string, take: (document: T) => void): void =>
      made.addEventListener(name, (event) => {
        heard();
        take(JSON.parse((event as MessageEvent<string>).data) as T);
      });
    made.addEventListener("open", () => {
      failures = 0;
      stopping = false;
      listener.opened();
      heard();
    });
    on<Layout>("layout", (document) => listener.layout(document));
    on<Problem[]>("problems", (document) => listener.problems(document));
    on<Events>("events", (document) => listener.events(document));
    on<Tick>("tick", (document) => listener.tick(document));
    made.addEventListener("stopping", () => (stopping = true));
    made.addEventListener("error", () =>
      lose(stopping ? "The frontend was told to stop." : "The connection to the frontend is lost."));
    watchdog = window.setTimeout(() => lose("The frontend does not answer."), SILENT_MS);
  }

  // A browser opens few connections to one place: a page that nobody sees gives its own back.
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
