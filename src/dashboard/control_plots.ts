// The plots of control: the response time against its set point, cores, and the share of GPUs.
import { cores, ms, percent } from "./format";
import type { ControlSamples } from "./history";
import type { Kind, Shown } from "./plots";

export interface Controlled extends Shown {
  /** Empty: all controlled models; then slo and set_point are percentages. */
  model: string;
  slo: number;
  set_point: number;
  samples: ControlSamples;
}

const response_word = (value: number | null | undefined, shown: Controlled): string =>
  shown.model ? `${ms(value)} ms` : percent(value == null ? value : value / 100);

const percentages = (parts: (number | null)[]): (number | null)[] => parts.map((part) => (part == null ? part : 100 * part));

export const CONTROL: Kind<Controlled>[] = [
  {
    id: "response",
    title: (shown) => (shown.model ? "Response time, milliseconds" : "Response time, % of the objective (worst model)"),
    lines: [
      { label: "response", color: "--line-response", value: ({ samples }) => samples.response },
      { label: "set point", color: "--line-set-point", dash: [6, 3], value: (shown) => shown.times.map(() => shown.set_point) },
      { label: "objective", color: "--line-slo", dash: [2, 3], value: (shown) => shown.times.map(() => shown.slo) },
    ],
    word: response_word,
    words: (shown) => {
      const over = shown.samples.response.filter((value) => value != null && value > shown.slo).length;
      return `${response_word(shown.samples.response.at(-1), shown)} now, set point ${response_word(shown.set_point, shown)}` +
        `; above the objective in ${over} of ${shown.times.length} seconds.`;
    },
  },
  {
    id: "cores",
    title: () => "CPU cores",
    lines: [
      { label: "granted", color: "--line-granted", fill: true, value: ({ samples }) => samples.granted },
      { label: "requested", color: "--line-requested", dash: [6, 3], value: ({ samples }) => samples.requested },
    ],
    word: (value) => cores(value),
    words: (shown) => {
      const short = shown.samples.granted.filter((value, index) => value != null && value < (shown.samples.requested[index] ?? 0) - 0.01).length;
      return `${cores(shown.samples.granted.at(-1))} granted of ${cores(shown.samples.requested.at(-1))} requested now` +
        `; fewer than requested in ${short} of ${shown.times.length} seconds.`;
    },
  },
  {
    id: "gpu-part",
    title: () => "Answered on GPUs, %",
    lines: [{ label: "on GPUs", color: "--line-gpu", fill: true, value: ({ samples }) => percentages(samples.gpu_part) }],
    word: (value) => percent(value == null ? value : value / 100),
    words: (shown) => `${percent(shown.samples.gpu_part.at(-1))} of the answers now, the rest on CPUs.`,
  },
];
