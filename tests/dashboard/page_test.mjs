// The dashboard in headless Chromium, with a real frontend and simulated devices, and with generated clusters.
//
//   node page_test.mjs BIN_FOLDER NODE_MODULES      exits with 77 if Chromium is not installed
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { CHROMIUM, open_browser, wait_for_line, start, stop, until } from "./browser.mjs";
import { start_frontend } from "./demo_cluster.mjs";

const [bin, modules] = process.argv.slice(2).map((folder) => resolve(folder));
if (!CHROMIUM) {
  console.log("page_test: skipped: Chromium is not installed; scripts/setup --for test installs it");
  process.exit(77);
}
const axe = readFileSync(createRequire(join(modules, "package.json")).resolve("axe-core/axe.min.js"), "utf8");
const browser = await open_browser(modules);
const elsewhere = [];

async function open(address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  page.on("request", (request) => new URL(request.url()).origin === new URL(address).origin || elsewhere.push(request.url()));
  page.on("pageerror", (error) => { throw error; });
  page.on("console", (message) => { if (/Content.Security.Policy/i.test(message.text())) throw new Error(message.text()); });
  await page.goto(address);
  await page.waitForSelector("body[data-shown-at]");
  return page;
}
const texts = (page, selector) => page.$$eval(selector, (all) => all.map((one) => one.textContent));
const problems = async (page) => (await texts(page, "#problem-list li")).join("\n");

/** The elements whose text is cut off, except those for screen readers. */
const cut_off = (page) => page.evaluate(() => [
  ...(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []),
  ...[...document.querySelectorAll("body *")]
    .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1 && !one.closest(".hidden, thead") &&
      getComputedStyle(one).overflowX !== "visible")
    .map((one) => `${one.tagName} ${one.className} ${one.id}: ${one.textContent.slice(0, 60)}`)]);

async function accessible(page, what) {
  // Injected by the debugger, because the page's policy forbids other scripts.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result } = await session.send("Runtime.evaluate", {
    expression: `axe.run({resultTypes: ["violations"]}).then((found) => JSON.stringify(found.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html + node.failureSummary)])))`,
    awaitPromise: true, returnByValue: true,
  });
  assert.equal(result.value, "[]", `${what}: ${result.value}`);
}

const tests = {
  async "shows gpulets, rates, reorganisations and a lost connection of a real frontend"() {
    const models = [{ name: "lenet", base_ms: 2, slo_ms: 60, rate: 60 }, { name: "bert", base_ms: 8, slo_ms: 200, rate: 20 }];
    const cluster = await start_frontend(bin, models);
    const page = await open(cluster.page);
    assert.match(await problems(page), /No backend is connected/);
    const backend = cluster.add_backend("n0", 2);
    await until(async () => (await texts(page, ".gpulet.ready")).length > 0, "a gpulet that is ready");
    await until(async () => !(await problems(page)), "no problems");
    const status = cluster.status();
    await status.ended;
    const document = JSON.parse(status.lines.join(""));
    const size_of = (one) => one.size + " %" + (one.policy_size === one.size ? "" : ` (policy ${one.policy_size} %)`);
    const expected = document.nodes.flatMap((node) => node.devices.flatMap((device) => device.gpulets.map((one) =>
      [size_of(one), ...one.models.map((model) => `${model.name} batch ${model.batch}`)].join())));
    const shown = await page.$$eval(".gpulet", (all) => all.map((one) => [one.querySelector(".size").textContent,
      ...[...one.querySelectorAll(".occupant")].map((two) => two.textContent.replace(/,.*/, ""))].join()));
    assert.deepEqual(shown.sort(), expected.sort());
    assert.equal(await page.$$eval("#events .mark", (all) => all.length > 0), true);

    const load = cluster.load(4, 1);
    await until(async () => Number((await texts(page, "tr[data-key=lenet] td"))[0]) > 20, "lenet's rate under load");
    await until(async () => /[1-9]/.test((await texts(page, "#plot-rate figcaption p"))[0]), "the plot's words under load");
    assert.match((await texts(page, "#plot-rate figcaption p"))[0], /reorganisation/);
    await load.ended;
    await stop(backend, "SIGKILL");
    await until(async () => /No backend is connected/.test(await problems(page)), "a lost backend in words");
    await until(async () => /Nothing serves lenet/.test(await problems(page)), "a model without gpulets in words");
    await stop(cluster.frontend);
    await until(async () => /has stopped|is lost|does not respond/.test(await problems(page)), "a lost frontend in words");
    assert.equal(await page.textContent("#state"), "not connected");
  },

  async "shows errors until they are over, and reconnects by itself"() {
    let feed = start(join(bin, "gpulet-dashboard-feed"), "1", "3");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    const page = await open(`http://127.0.0.1:${port}/`);
    assert.equal(await problems(page), "");
    feed.process.stdin.write("fail\nunavailable model-2\nwarn lost node n9\nrepeat over and over\nreorganise\n");
    await until(async () => /Nothing serves model-2: no device has memory for it/.test(await problems(page)), "why a model has no gpulet");
    assert.match(await problems(page), /gpulet of .* on node-00, device 0, failed: the file of model-1/);
    assert.deepEqual((await texts(page, "#events .warning .text")).sort(), ["lost node n9", "over and over"]);
    assert.deepEqual((await texts(page, "#events .warning .count")).filter(Boolean), ["5 times"]);
    assert.match((await texts(page, "#events .mark"))[0], /epoch 2: plans another division/);
    await stop(feed, "SIGKILL");
    await until(async () => /connection to the frontend is lost/.test(await problems(page)), "a lost connection in words");
    feed = start(join(bin, "gpulet-dashboard-feed"), "1", "3", port);
    await until(async () => (await page.textContent("#state")) === "serving", "serving again");
    assert.equal(await problems(page), "");
    await stop(feed);
  },

  async "shows a problem with cause and fix for every model above its violation target"() {
    const feed = start(join(bin, "gpulet-dashboard-feed"), "2", "3");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    const page = await open(`http://127.0.0.1:${port}/`);
    assert.equal(await page.isVisible("#no-problems"), true);
    assert.equal(await page.$$eval("#models .meter.over", (all) => all.length), 0);
    feed.process.stdin.write("full\nviolated 0.5\n");
    await until(async () => (await texts(page, "#problem-list > li")).length === 3, "a problem of each model");
    for (const text of await texts(page, "#problem-list > li")) {
      assert.match(text, /Too few devices for model-\d/);
      assert.match(text, /50 % of its requests/);
      assert.match(text, /Add \d devices?.*, lower the rate, or raise the SLO/);
    }
    assert.equal(await page.isVisible("#no-problems"), false);
    // Served requests are in time, so only the drops can colour the bars.
    await until(() => page.$$eval("#models .meter.over", (all) => all.length === 3), "bars in the colour of violations");
    assert.ok((await texts(page, "#models .meter")).every((text) => /^80 %$/.test(text)));
    await accessible(page, "problems");
    await stop(feed);
  },

  async "opens the plan of a reorganisation and its reasons"() {
    const feed = start(join(bin, "gpulet-dashboard-feed"), "2", "3");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    const page = await open(`http://127.0.0.1:${port}/`);
    feed.process.stdin.write("reorganise\n");
    await until(async () => (await texts(page, "#events li")).length === 1, "the reorganisation");
    assert.equal((await texts(page, "#events .mark")).length, 1);
    await page.click("#events .mark summary");
    await until(async () => /40 % is the smallest size/.test((await texts(page, "#events .decided"))[0]), "why");
    const decided = (await texts(page, "#events .decided"))[0];
    assert.match(decided, /Policy elastic/);
    assert.match(decided, /the first attempt served everything/);
    assert.match(decided, /5\.0\/s of model-1: the devices are full/);
    assert.match(decided, /node-00 \/ 0, 40 %, new. model-0: 20\.0\/s in batches of 8/);
    await page.click("#events .mark summary");
    assert.equal(await page.isVisible("#events .decided"), false);
    // The right end of the plot is the present. The mark has moved from there to the left since.
    const plot = await page.$("#plot-rate .u-over");
    const { width, height } = await plot.boundingBox();
    let from_right = 2;
    await until(async () => {
      await plot.click({ position: { x: width - from_right, y: height / 2 } });
      from_right += 2;
      return page.isVisible("#events .decided");
    }, "opened from the plot");
    await page.click("li.device:first-child .device-name");
    await until(async () => /40 % is the smallest size/.test(await page.textContent("#device-detail")), "why, in a device's detail");
    await accessible(page, "what was decided");
    for (const width of [1280, 400]) {
      await page.setViewportSize({ width, height: 900 });
      let cut = [];
      await until(async () => !(cut = await cut_off(page)).length, "nothing cut off", 5).catch(() => assert.deepEqual(cut, [], `cut off at ${width}`));
    }
    await stop(feed);
  },

  async "supports keyboard, themes, accessibility tools and narrow screens"() {
    const feed = start(join(bin, "gpulet-dashboard-feed"), "6", "9");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    feed.process.stdin.write("unavailable model-2\nviolated 0.1\nwarn something\nreorganise\n");
    const page = await open(`http://127.0.0.1:${port}/`, { colorScheme: "light", reducedMotion: "reduce" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName);
    await until(async () => (await texts(page, "#problem-list > li")).length === 2, "the problems, folded by cause");
    const walk = [];
    for (let i = 0; i < 9; ++i) {
      await page.keyboard.press("Tab");
      walk.push(await focused());
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none", `focus shows on ${walk.at(-1)}`);
    }
    assert.deepEqual(walk.slice(0, 5), ["skip", "theme", "SUMMARY", "shown", "density"]);
    assert.ok(walk.includes("device-name") && walk.includes("scroll") && walk.includes("model-name"), walk.join());
    await page.focus(".device-name");
    await page.keyboard.press("End");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "node-00 / 5");
    await page.keyboard.press("Enter");
    assert.match(await page.textContent("#device-detail caption"), /node-00, device 5/);
    assert.equal((await texts(page, "#device-detail tbody tr")).length, 4);
    await page.click("tr[data-key=model-4] .model-name");
    assert.equal(await page.textContent("#traffic-title"), "model-4");
    await accessible(page, "light");
    const light = await ground();
    await page.click("#theme");
    assert.equal(await ground(), light);
    await page.click("#theme");
    assert.notEqual(await ground(), light);
    await page.reload();
    await page.waitForSelector("body[data-shown-at]");
    assert.notEqual(await ground(), light, "the choice is kept");
    await accessible(page, "dark");
    await page.setViewportSize({ width: 360, height: 800 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "fits a narrow screen");
    await stop(feed);
  },

  async "shows the control panel only for controlled models"() {
    const feed = start(join(bin, "gpulet-dashboard-feed"), "4", "4");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    const page = await open(`http://127.0.0.1:${port}/`, { colorScheme: "light", reducedMotion: "reduce" });
    assert.equal(await page.isVisible("#control"), false);
    feed.process.stdin.write("control\n");
    await page.waitForSelector("#control", { state: "visible" });
    assert.equal((await texts(page, "#controlled-models tbody tr")).length, 4);
    assert.deepEqual(await texts(page, "#controlled-nodes tbody th"), ["node-00 / 1", "node-01 / 1"]);
    assert.match((await texts(page, "#plot-response figcaption p"))[0], /set point 80 %/);
    assert.deepEqual(await texts(page, "li.device:first-child .occupant"), ["model-0", "model-1", "model-2", "model-3"]);
    assert.match((await texts(page, ".by_need .size"))[0], /100 %, by need/);
    await until(async () => /^\d\.\d\d cores$/.test((await texts(page, ".controlled .size"))[0]), "cores as the size");
    feed.process.stdin.write("load 3\n");
    await until(async () => /too few/.test((await texts(page, "#controlled-nodes tbody td:last-child"))[0]), "contention in words");
    await until(async () => /above the objective in [1-9]/.test((await texts(page, "#plot-response figcaption p"))[0]), "slow answers in words");
    await page.reload();
    await page.waitForSelector("#control", { state: "visible" });
    await until(async () => /above the objective in [1-9]/.test((await texts(page, "#plot-response figcaption p"))[0]), "the past of control");
    await page.selectOption("#shown", "model-1");
    assert.equal(await page.textContent("#control-title"), "Control of model-1");
    assert.match((await texts(page, "#plot-response figcaption p"))[0], /set point 40\.0 ms/);
    await accessible(page, "control, light");
    await page.emulateMedia({ colorScheme: "dark" });
    await accessible(page, "control, dark");
    await page.setViewportSize({ width: 360, height: 800 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "fits a narrow screen");
    await stop(feed);
  },

  async "updates 200 devices and 50 models at low cost"() {
    const feed = start(join(bin, "gpulet-dashboard-feed"), "200", "50");
    const [, port] = await wait_for_line(feed, /^port (\d+)/);
    const [costs, , layout_bytes, tick_bytes] = await wait_for_line(feed, /^costs (\d+) (\d+) (\d+)/);
    const page = await open(`http://127.0.0.1:${port}/`);
    assert.equal((await texts(page, "li.device")).length, 200);
    assert.equal((await texts(page, ".gpulet")).length, 600);
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const busy = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value]));
    const before = await busy();
    const shown_at = () => page.getAttribute("body", "data-shown-at").then(Number);
    const first = await shown_at();
    await until(async () => (await shown_at()) > first + 2.5, "three ticks");
    const after = await busy();
    const task = (after.TaskDuration - before.TaskDuration) / ((await shown_at()) - first);
    console.log(`    ${costs}; browser: ${(1000 * task).toFixed(0)} ms of main thread a second, ` +
      `script ${(1000 * (after.ScriptDuration - before.ScriptDuration) / ((await shown_at()) - first)).toFixed(0)} ms, heap ${(after.JSHeapUsedSize / 1e6).toFixed(1)} MB`);
    assert.ok(after.Nodes < 30000, `${after.Nodes} nodes`);
    assert.ok(Number(layout_bytes) < 200_000 && Number(tick_bytes) < 20_000, "what is sent is bounded");
    feed.process.stdin.write("reorganise\n");
    await until(async () => (await texts(page, "#events .mark")).length === 1, "the reorganisation");
    await accessible(page, "200 devices");
    await stop(feed);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(tests)) {
  const began = Date.now();
  try {
    await run();
    console.log(`ok      ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name} (${Date.now() - began} ms)\n${error.stack}`);
  }
}
await browser.close();
if (elsewhere.length) console.log(`FAILED  requests to other origins: ${elsewhere.join(" ")}`);
process.exit(failed || elsewhere.length ? 1 : 0);
