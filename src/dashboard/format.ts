// Formats numbers and times.

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const time = (seconds: number): string => clock.format(seconds * 1000);

/** A rate, with about three significant digits. */
export function rate(value: number | null | undefined): string {
  if (value == null) return "–";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

export function ms(value: number | null | undefined): string {
  if (value == null) return "–";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

export const cores = (value: number | null | undefined): string => (value == null ? "–" : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2));

export function percent(part: number | null | undefined): string {
  if (part == null) return "–";
  const value = 100 * part;
  return (value > 0 && value < 10 ? value.toFixed(value < 0.1 ? 2 : 1) : Math.round(value).toString()) + " %";
}

export function duration(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
