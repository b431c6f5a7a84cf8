// The documents that the frontend sends (docs/dashboard.md).

export interface ModelEntry {
  name: string;
  kind: "model" | "application";
  state: "loading" | "ready" | "idle" | "unavailable" | "leaving";
  version: string;
  slo_ms: number;
  planned: number;
  unserved: number;
  reason: string;
  drift: string; // how it differs from its profile; empty: it does not
  set_point_ms?: number; // only if the model is controlled
}

/** [position of the model or -1, planned rate, batch, milliseconds of a batch] */
export type Occupant = [number, number, number, number];

export interface GpuletEntry {
  id: string;
  size: number;
  policy_size?: number; // that the policy chose; only if it is in force
  instance: string; // "3g@4" on a device divided by MIG, else empty
  state: "preparing" | "ready" | "restarting" | "failed" | "retiring";
  status: string;
  in_force: boolean;
  duty_ms: number;
  service?: "by_need" | "controlled"; // of an instance
  models: Occupant[];
}

export interface DeviceEntry {
  node: string;
  device: number;
  type: string;
  mechanism: string;
  leaving: boolean;
  memory_mb: number;
  cores?: number; // CPUs only
  gpulets: GpuletEntry[];
}

export interface Layout {
  policy: string;
  plan: number; // number of the decision in force; 0: none
  leader?: string; // another frontend of the cluster leads
  owners?: [string, number, number][]; // frontend, its gpulets, planned rate; only if there are several
  models: ModelEntry[];
  devices: DeviceEntry[];
}

/** docs/status.md lists the causes. */
export interface Problem {
  cause: string;
  grave: boolean;
  model: string; // empty: not of a single model
  node: string;
  device?: number;
  gpulet?: string;
  text: string;
  fix: string; // empty: no action is needed
}

/** [offered, served, violations, p50, p99, queued]; null: not yet known */
export type ModelNumbers = [number | null, number | null, number | null, number | null, number | null, number];

/** [response ms, part on GPUs, cores requested, granted, periods, violated periods]; null: no request was answered */
export type ControlNumbers = [number | null, number | null, number, number, number, number];

/** [name of the CPU, cores, requested, granted, contention] */
export type ControlledNode = [string, number, number, number, number];

/** The last control period, if any model is controlled. */
export interface Control {
  models: (ControlNumbers | null)[];
  /** cores granted to each gpulet */
  cores: (number | null)[];
  nodes: ControlledNode[];
}

export interface Tick {
  at: number;
  state: "starting" | "serving" | "unavailable" | "forwarding" | "standby" | "draining";
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
  /** [seconds since 1970, text, is a warning, number of occurrences] */
  log: [number, string, boolean, number][];
  /** [seconds since 1970, epoch, summary, number of the decision, milliseconds until it was in force] */
  reorganisations: [number, number, string, number, number][];
}

export interface DecidedGpulet {
  node: string;
  device: number;
  size: number;
  policy_size: number;
  instance: string;
  service: "rounds" | "by_need" | "controlled";
  created: boolean;
  duty_ms: number;
  why: string;
  models: { name: string; rate: number; batch: number; latency_ms: number; slo_ms: number }[];
}

/** The response of /gpulet/plans/NUMBER. */
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
