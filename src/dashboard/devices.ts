// Devices as bars divided into gpulets, and the details of one device.
import { find, keyed, label_cells, make, style, write } from "./dom";
import type { DeviceEntry, GpuletEntry, Layout, Occupant, Tick } from "./documents";
import { cores, counted, ms, percent, rate } from "./format";
import type { Palette } from "./palette";
import { chosen, gpulet_element, load_plan } from "./plan";

const MAX_LARGE = 8;
const MAX_MEDIUM = 40;

const key_of = (device: DeviceEntry): string => `${device.node}/${device.device}`;

const size_of = (gpulet: GpuletEntry): string =>
  `${gpulet.size} %${chosen(gpulet)}${gpulet.instance ? ` ${gpulet.instance}` : ""}${gpulet.service === "by_need" ? ", by need" : ""}`;

const is_controlled = (gpulet: GpuletEntry): boolean => gpulet.service === "controlled";
/** Whether gpulets are as wide as the cores granted to them, which change every second. */
const has_control = (device: DeviceEntry): boolean => (device.cores ?? 0) > 0 && device.gpulets.some(is_controlled);

function state_of(gpulet: GpuletEntry): string {
  const state = gpulet.state === "ready" ? (gpulet.in_force ? "" : "waiting") : gpulet.state;
  return state ? `, ${state}` : "";
}

/** The element of a gpulet, and its parts that change every second. */
interface Shown {
  element: HTMLElement;
  size: HTMLElement;
  busy: HTMLElement;
}

export class Devices {
  private readonly list = find("devices").appendChild(make("ul", "device-list"));
  private readonly detail = find("device-detail");
  private readonly density = find<HTMLSelectElement>("density");
  private layout: Layout | undefined;
  private tick: Tick | undefined;
  private readonly contents = new Map<string, string>(); // by device: what its element shows
  private readonly bars = new Map<string, Shown[]>();
  private readonly used = new Map<string, HTMLElement>();
  private readonly free = new Map<string, HTMLElement>();
  private open = ""; // the device in detail
  private why_of = ""; // the device and plan that `why` explains
  private readonly why = make("div", "plan");

  constructor(private readonly palette: Palette) {
    this.list.addEventListener("keydown", (event) => this.move(event));
    this.list.addEventListener("click", (event) => {
      const button = (event.target as Element).closest("li.device")?.querySelector("button");
      if (button) this.toggle(button.dataset.device ?? "");
    });
    this.density.addEventListener("change", () => this.set_density());
  }

  show_layout(layout: Layout): void {
    this.layout = layout;
    this.set_density();
    keyed(this.list, layout.devices, key_of, (device) => this.create(device), (element, device) => this.fill(element, device));
    for (const key of [...this.contents.keys()]) {
      if (layout.devices.some((device) => key_of(device) === key)) continue;
      for (const kept of [this.contents, this.bars, this.used, this.free]) kept.delete(key);
    }
    const buttons = this.buttons();
    if (!buttons.some((one) => one.tabIndex === 0) && buttons[0]) buttons[0].tabIndex = 0;
    const busy = layout.devices.filter((device) => device.gpulets.some((one) => one.in_force)).length;
    const gpulets = layout.devices.reduce((sum, device) => sum + device.gpulets.length, 0);
    write(find("devices-words"), layout.devices.length === 0 ? "None: no backend is connected."
      : `${busy} of ${layout.devices.length} in use, ${counted(gpulets, "gpulet")}`);
    this.show_detail();
  }

  show_tick(tick: Tick): void {
    this.tick = tick;
    let at = 0;
    for (const [index, device] of (this.layout?.devices ?? []).entries()) {
      let all = 0;
      let size = 0;
      for (const [place, gpulet] of device.gpulets.entries()) {
        const busy = tick.busy[at] ?? 0;
        const granted = tick.control?.cores[at++] ?? 0;
        const percents = device.cores && is_controlled(gpulet) ? (100 * granted) / device.cores : gpulet.size;
        const shown = this.bars.get(key_of(device))?.[place];
        if (shown) {
          style(shown.busy, "--busy", `${busy}%`);
          write(shown.busy.firstElementChild!, `${busy} % busy`);
          if (is_controlled(gpulet)) this.resize(shown, gpulet, percents, granted);
        }
        if (!gpulet.in_force) continue;
        size += percents;
        all += (percents * busy) / 100;
      }
      if (has_control(device)) this.show_free(device, 100 - size);
      const memory = tick.memory_mb[index] ?? 0;
      const used = this.used.get(key_of(device));
      if (used) {
        write(used, `${Math.round(size)} % allocated, ${Math.round(all)} % busy` +
          (device.memory_mb > 0 ? `, ${percent(memory / device.memory_mb)} of ${(device.memory_mb / 1024).toFixed(0)} GB` : ""));
      }
    }
    this.show_detail();
  }

  private set_density(): void {
    const count = this.layout?.devices.length ?? 0;
    const automatic = count <= MAX_LARGE ? "large" : count <= MAX_MEDIUM ? "medium" : "small";
    const size = this.density.value === "auto" ? automatic : this.density.value;
    this.list.className = `device-list ${size}`;
  }

  private create(device: DeviceEntry): HTMLElement {
    const name = make("button", "device-name", `${device.node} / ${device.device}`);
    name.type = "button";
    name.dataset.device = key_of(device);
    name.tabIndex = -1;
    name.setAttribute("aria-expanded", "false");
    name.setAttribute("aria-controls", "device-detail");
    const used = make("span", "used");
    this.used.set(key_of(device), used);
    return make("li", "device", "", make("div", "device-head", "", name, make("span", "type", device.type), used), make("ol", "bar"));
  }

  private fill(element: HTMLElement, device: DeviceEntry): void {
    const key = key_of(device);
    const names = device.gpulets.flatMap((gpulet) => gpulet.models.map(([place]) => this.name(place)));
    const text = JSON.stringify([device, names]);
    if (this.contents.get(key) === text) return;
    this.contents.set(key, text);
    write(element.querySelector(".type")!, device.leaving ? `${device.type}, leaving` : device.type);
    // Retiring gpulets and their successors may briefly exceed the device.
    const total = Math.max(100, device.gpulets.reduce((sum, one) => sum + one.size, 0));
    const taken = device.gpulets.reduce((sum, one) => sum + one.size, 0);
    const shown = device.gpulets.map((gpulet) => this.bar(gpulet, total));
    this.bars.set(key, shown);
    const parts = shown.map((one) => one.element);
    this.free.delete(key);
    if (taken < 100) {
      const free = make("li", "free", "", make("span"));
      parts.push(free);
      this.free.set(key, free);
    }
    element.querySelector(".bar")!.replaceChildren(...parts);
    this.show_free(device, 100 - taken);
  }

  private show_free(device: DeviceEntry, percents: number): void {
    const free = this.free.get(key_of(device));
    if (!free) return;
    style(free, "flex-grow", String(Math.max(0, percents)));
    write(free.firstElementChild!, percents >= 0.5 ? `${Math.round(percents)} % free` : "");
  }

  private resize(shown: Shown, gpulet: GpuletEntry, percents: number, granted: number): void {
    style(shown.element, "flex-grow", String(percents));
    write(shown.size.firstElementChild!, cores(granted));
    shown.element.title = `${cores(granted)} cores${state_of(gpulet)}: ${this.names(gpulet)}`;
  }

  private bar(gpulet: GpuletEntry, total: number): Shown {
    const busy = make("span", "busy", "", make("span", "hidden", ""));
    const size = is_controlled(gpulet) ? make("span", "size", "", make("span"), make("span", "unit", ` cores${state_of(gpulet)}`))
      : make("span", "size", `${size_of(gpulet)}${state_of(gpulet)}`);
    const element = make("li", `gpulet ${gpulet.state} ${gpulet.service ?? ""} ${gpulet.in_force ? "" : "out"}`);
    element.dataset.gpulet = gpulet.id;
    const occupants = make("ul", "occupants", "", ...this.occupants(gpulet));
    element.append(size, occupants, busy);
    element.title = `${size_of(gpulet)}${state_of(gpulet)}: ${this.names(gpulet)}`;
    style(element, "flex-grow", String(gpulet.size));
    style(element, "flex-basis", "0");
    style(element, "--part", String(gpulet.size / total));
    return { element, size, busy };
  }

  /** Models that take turns stand under each other by the time that they take of a round. */
  private occupants({ models, service }: GpuletEntry): HTMLElement[] {
    const times = models.map(([, planned, batch, latency]) => (batch > 0 && !service ? (planned / batch) * latency : 1));
    const all = times.reduce((sum, one) => sum + one, 0);
    return models.map((one, index) => {
      const element = this.occupant(one, !service);
      if (service !== "by_need") style(element, "flex-grow", String(Math.max(0.35, times[index]! / all)));
      return element;
    });
  }

  private occupant([place, planned, batch]: Occupant, promised: boolean): HTMLElement {
    const element = make("li", `occupant ${this.palette.classes(this.name(place))}`, "", make("b", "", this.name(place)));
    if (batch > 0 && promised) element.append(make("span", "", ` batch ${batch}, ${rate(planned)}/s`));
    return element;
  }

  private name(place: number): string {
    return this.layout?.models[place]?.name ?? "a removed model";
  }
  private names(gpulet: GpuletEntry): string {
    if (gpulet.models.length === 0) return "no model";
    if (gpulet.service === "by_need" && gpulet.models.length > 1) return `${gpulet.models.map(([place]) => this.name(place)).join(", ")}; serves the model with the greatest need`;
    return gpulet.models.map((one) => (gpulet.service ? this.name(one[0]) : this.in_words(one))).join("; ");
  }
  private in_words([place, planned, batch, latency]: Occupant): string {
    return batch > 0 ? `${this.name(place)}, batch ${batch} in ${ms(latency)} ms, ${rate(planned)} requests per second` : this.name(place);
  }

  // ---- keyboard, detail

  private buttons(): HTMLButtonElement[] {
    return [...this.list.querySelectorAll<HTMLButtonElement>("button.device-name")];
  }

  private move(event: KeyboardEvent): void {
    const buttons = this.buttons();
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    if (at < 0) return;
    const columns = getComputedStyle(this.list).gridTemplateColumns.split(" ").length;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: buttons.length - 1 - at };
    const step = steps[event.key];
    if (event.key === "Escape" && this.open) this.toggle(this.open);
    const next = step === undefined ? undefined : buttons[Math.min(buttons.length - 1, Math.max(0, at + step))];
    if (!next) return;
    event.preventDefault();
    buttons[at]!.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  private toggle(device: string): void {
    this.open = this.open === device ? "" : device;
    for (const button of this.buttons()) button.setAttribute("aria-expanded", String(button.dataset.device === this.open));
    this.show_detail();
  }

  private show_detail(): void {
    const device = this.layout?.devices.find((one) => key_of(one) === this.open);
    this.detail.hidden = !device;
    if (!device || !this.layout) {
      this.why_of = "";
      delete this.detail.dataset.shown;
      return this.detail.replaceChildren();
    }
    const first = this.layout.devices.slice(0, this.layout.devices.indexOf(device)).reduce((sum, one) => sum + one.gpulets.length, 0);
    const heads = ["Gpulet", "Model", "Batch", "Requests/s", "Batch takes, ms", "Round, ms", "Busy", "State"];
    const rows = device.gpulets.flatMap((gpulet, place) => {
      const busy = `${this.tick?.busy[first + place] ?? 0} %`;
      const occupants: (Occupant | undefined)[] = gpulet.models.length ? gpulet.models : [undefined];
      const granted = this.tick?.control?.cores[first + place];
      const size = is_controlled(gpulet) ? `${cores(granted)} cores` : size_of(gpulet);
      const promised = !gpulet.service;
      return occupants.map((one) => [size, one ? this.name(one[0]) : "none", one ? String(one[2]) : "–", rate(promised ? one?.[1] : null), ms(one?.[3]),
        ms(promised ? gpulet.duty_ms : null), busy, gpulet.status ? `${gpulet.state}: ${gpulet.status}` : gpulet.state]);
    });
    const text = JSON.stringify([this.open, rows]);
    if (this.detail.dataset.shown === text) return;
    this.detail.dataset.shown = text;
    const table = make("table", "", "", make("caption", "", `${device.node}, device ${device.device}: ${device.type}, ${device.mechanism}`),
      make("thead", "", "", make("tr", "", "", ...heads.map((head) => {
        const cell = make("th", "", head);
        cell.scope = "col";
        return cell;
      }))),
      make("tbody", "", "", ...rows.map((row) => {
        const element = make("tr", "", "", ...row.map((cell) => make("td", "", cell)));
        label_cells(element, heads);
        return element;
      })));
    this.detail.replaceChildren(table, this.why);
    this.load_why(device, this.layout.plan);
  }

  /** Shows why the plan in force has these gpulets on the device. */
  private load_why(device: DeviceEntry, plan: number): void {
    const requested = `${key_of(device)} ${plan}`;
    if (this.why_of === requested) return;
    this.why_of = requested;
    this.why.replaceChildren();
    if (plan === 0) return;
    load_plan(plan)
      .then(({ gpulets }) => {
        if (this.why_of !== requested) return;
        const here = gpulets.filter((one) => one.node === device.node && one.device === device.device);
        if (here.length) this.why.replaceChildren(make("h3", "", `Reasons of plan ${plan}`), make("ul", "", "", ...here.map(gpulet_element)));
      })
      .catch((error: unknown) => {
        if (this.why_of === requested) this.why.replaceChildren(make("p", "", `The reasons are not available: ${String(error)}`));
      });
  }
}
