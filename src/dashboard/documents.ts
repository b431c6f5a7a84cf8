// What the frontend tells (docs/dashboard.md), as it comes.

export interface ModelEntry {
  name: string;
  kind: "model" | "application";
  state: "loading" | "ready" | "idle" | "unavailable" | "leaving";
  version: string;
  slo_ms: number;
  planned: number;
  unserved: number;
  reason: string;
  set_point_ms?: number; // only where its executables are controlled
}

/** [place of the model or -1, planned rate, batch, milliseconds of a batch] */
export type Occupant = [number, number, number, number];

export interface GpuletEntry {
  id: string;
  size: number;
  instance: string; // "3g@4" on a device divided by MIG, else empty
  state: "preparing" | "ready" | "restarting" | "failed" | "retiring";
  status: string;
  in_force: boolean;
  duty_ms: number;
  service?: "by_need" | "controlled"; // of an executable
  models: Occupant[];
}

export interface DeviceEntry {
  node: string;
  device: number;
  type: string;
  mechanism: string;
  leaving: boolean;
  memory_mb: number;
  cores?: number; // of a CPU
  gpulets: GpuletEntry[];
}

/** A node, or a device of it, that takes no new gpulets for a while. */
export interface ExclusionEntry {
  node: string;
  device?: number; // absent: the whole node
  cause: string;
  error: string;
}

export interface Layout {
  policy: string;
  models: ModelEntry[];
  devices: DeviceEntry[];
  exclusions?: ExclusionEntry[]; // absent: a frontend that does not tell
}

/** [offered, served, violations, p50, p99, queued]; null: not known yet */
export type ModelNumbers = [number | null, number | null, number | null, number | null, number | null, number];

/** [response ms, part on GPU, cores asked, given, periods, violated ones]; null: nothing was answered */
export type ControlNumbers = [number | null, number | null, number, number, number, number];

/** [name of the CPU, cores, asked, given, contention] */
export type ControlledNode = [string, number, number, number, number];

/** Where executables are controlled: of the last control period. */
export interface Control {
  models: (ControlNumbers | null)[];
  /** given to each gpulet */
  cores: (number | null)[];
  nodes: ControlledNode[];
}

export interface Tick {
  at: number;
  state: "starting" | "serving" | "unavailable" | "draining";
  epoch: number;
  reorganising: boolean;
  schedulable: boolean;
  uptime_s: number;
  clients: number;
  models: ModelNumbers[];
  busy: number[];
  memory_mb: number[];
  control?: Control;
}

export interface Events {
  /** [seconds since 1970, text, is a warning] */
  log: [number, string, boolean][];
  /** [seconds since 1970, epoch, reason] */
  reorganisations: [number, number, string][];
}
