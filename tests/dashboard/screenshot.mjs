// Makes the picture of the README: node screenshot.mjs BIN_FOLDER NODE_MODULES OUT_FOLDER
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { open_browser, stop, until } from "./browser.mjs";
import { start_frontend } from "./demo_cluster.mjs";

const [bin, modules, out] = process.argv.slice(2).map((folder) => resolve(folder));
mkdirSync(out, { recursive: true });
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

const cluster = await start_frontend(bin, [
  { name: "lenet", base_ms: 1.2, slo_ms: 25, rate: 160, memory_mb: 180 },
  { name: "mobilenet_v2", base_ms: 5, slo_ms: 60, rate: 70, memory_mb: 420 },
  { name: "resnet50", base_ms: 9, slo_ms: 110, rate: 55, memory_mb: 980 },
  { name: "bert", base_ms: 8, slo_ms: 140, rate: 45, memory_mb: 1400 },
  { name: "googlenet", base_ms: 7, slo_ms: 90, rate: 40, memory_mb: 610 },
  { name: "vgg16", base_ms: 16, slo_ms: 260, rate: 20, memory_mb: 2100 },
]);
cluster.add_backend("n0", 2);
cluster.add_backend("n1", 2);
const browser = await open_browser(modules);
const page = await (await browser.newContext({ viewport: { width: 1360, height: 1500 }, colorScheme: "light" })).newPage();
await page.goto(cluster.page);
await until(async () => (await page.$$(".gpulet.ready")).length >= 3, "gpulets", 30);
await cluster.load(40, 0.8).ended;
const load = cluster.load(120, 1.7);
await pause(75); // until the minute of the reorganisation is over
await page.screenshot({ path: join(out, "dashboard.png"), fullPage: true });
await stop(load);
await stop(cluster.frontend);
await browser.close();
process.exit(0);
