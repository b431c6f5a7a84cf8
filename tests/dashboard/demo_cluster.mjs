// A frontend with simulated devices and load, for the browser tests and the screenshot.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { wait_for_line, start, temporary_folder } from "./browser.mjs";

/** Starts a frontend on free ports. models: [{name, base_ms, slo_ms, rate}] */
export async function start_frontend(bin, models) {
  const folder = temporary_folder();
  const write = (file, content) => writeFileSync(join(folder, file), typeof content === "string" ? content : JSON.stringify(content));
  mkdirSync(join(folder, "profiles", "v100"), { recursive: true });
  const rows = ["model,batch,partition,latency_ms"];
  for (const { name, base_ms } of models) {
    write(`${name}.pt`, `stands for ${name}`);
    for (const size of [20, 40, 60, 80, 100])
      for (const batch of [1, 2, 4, 8, 16, 32])
        rows.push([name, batch, size, (base_ms * (1 + 0.3 * (batch - 1)) * (0.4 + 60 / size)).toFixed(4)].join());
  }
  const tensor = (name) => [{ name, type: "UINT8", shape: [1] }];
  write("profiles/v100/latency.csv", rows.join("\n") + "\n");
  write("profiles/v100/profile.json", { format: 1, name: "v100", models: Object.fromEntries(models.map(({ name, memory_mb }) => [name, { memory_mb: memory_mb ?? 500 }])) });
  write("models.json", { models: models.map(({ name, slo_ms, rate }) => ({ name, file: `${name}.pt`, inputs: tensor("x"), outputs: tensor("y"), slo_ms, rate, max_batch: 32 })) });
  const free = "127.0.0.1:0";
  write("frontend.json", { listen: free, backend_listen: free, http: free, grpc: "off", metrics: free, models: "models.json", profiles: "profiles", period_s: 5 });
  const frontend = start(join(bin, "gpulet-frontend"), "--config", join(folder, "frontend.json"));
  const [, clients, backends] = await wait_for_line(frontend, /clients (\S+), backends ([^\s,]+)/);
  const [, page] = await wait_for_line(frontend, /metrics (?:http:\/\/)?([^\s/]+)/);
  return {
    frontend,
    page: `http://${page}/`,
    add_backend(node, devices) {
      write(`${node}.json`, { node, frontend: backends, model_store: `store-${node}`, profiles: "profiles", proxy: join(bin, "gpulet-proxy-simulated"),
        devices: [{ type: "v100", count: devices, partitioning: "simulated", memory_mb: 16384 }] });
      return start(join(bin, "gpulet-backend"), "--config", join(folder, `${node}.json`));
    },
    load(seconds, scale = 1, only = () => true) {
      write("workload.json", { models: models.filter(only).map(({ name, slo_ms, rate }) => ({ name, rate, slo_ms, arrivals: "poisson" })) });
      return start(join(bin, "gpulet"), "load", "--target", clients, "--workload", join(folder, "workload.json"), "--seconds", String(seconds), "--rate-scale", String(scale));
    },
    status: () => start(join(bin, "gpulet"), "status", "--target", clients, "--json"),
  };
}
