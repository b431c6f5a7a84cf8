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

export interface Layout {
  policy: string;
  plan: number; // of the decision in force; 0: none
  models: ModelEntry[];
  devices: DeviceEntry[];
}

/** What is wrong, as the frontend found it: docs/status.md lists the causes. */
export interface Problem {
  cause: string;
  grave: boolean;
  model: string; // empty: it is not of one model
  node: string;
  device?: number;
  gpulet?: string;
  text: string;
  fix: string; // empty: there is nothing to do
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
  /** [seconds since 1970, text, is a warning, how often it happened] */
  log: [number, string, boolean, number][];
  /** [seconds since 1970, epoch, summary, number of the decision, milliseconds until it was in force] */
  reorganisations: [number, number, string, number, number][];
}

export interface DecidedGpulet {
  node: string;
  device: number;
  size: number;
  instance: string;
  service: "rounds" | "by_need" | "controlled";
  created: boolean;
  duty_ms: number;
  why: string;
  models: { name: string; rate: number; batch: number; latency_ms: number; slo_ms: number }[];
}

/** The answer of /gpulet/plans/NUMBER. */
export interface PlanDocument {
  number: number;
  epoch: number;
  policy: string;
  summary: string;
  took_ms: number;
  retired: number;
  notes: string[];
  unserved: { model: string; rate: number; reason: string }[];
  gpulets: DecidedGpulet[];
}
