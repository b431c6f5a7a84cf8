// Shared by the browser tests and the screenshot: processes, a browser, and waiting for conditions.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

const started = [];

/** Starts a program; `lines` collects its output and errors. */
export function start(program, ...args) {
  const process = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
  const one = { process, lines: [], ended: new Promise((done) => process.on("exit", done)) };
  for (const stream of [process.stdout, process.stderr]) createInterface(stream).on("line", (line) => one.lines.push(line));
  process.stdin.on("error", () => {});
  started.push(one);
  return one;
}

/** Waits until a line of the program matches; returns the match. */
export async function wait_for_line(one, pattern) {
  let match;
  await until(() => (match = one.lines.map((line) => line.match(pattern)).find(Boolean)), `a line like ${pattern} of ${one.process.spawnfile}:\n${one.lines.join("\n")}`);
  return match;
}

export async function until(holds, what, seconds = 15) {
  const deadline = Date.now() + 1000 * seconds;
  for (;;) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((done) => setTimeout(done, 30));
  }
}

export async function stop(one, signal = "SIGTERM") {
  if (one.process.exitCode === null) one.process.kill(signal);
  return one.ended;
}

export function temporary_folder() {
  const folder = mkdtempSync(join(tmpdir(), "gpulet-dashboard-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export async function open_browser(modules) {
  const { chromium } = createRequire(join(modules, "package.json"))("playwright-core");
  return chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
}

process.on("exit", () => {
  for (const one of started) if (one.process.exitCode === null) one.process.kill("SIGKILL");
});
