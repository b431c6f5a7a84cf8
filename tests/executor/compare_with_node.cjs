// Computes the batches of a folder with npm's onnxruntime-node and compares its outputs with those in the folder.
//
//   node compare_with_node.cjs PACKAGES FOLDER [TOLERANCE]
//
// PACKAGES: the node_modules that scripts/onnxruntime-setup --node makes. FOLDER: models and cases.json, which
// onnx_generated_test.cc and scripts/check_onnx_files.py write. TOLERANCE: how far floating-point numbers may differ, as a
// fraction of the largest magnitude of their tensor; 1e-6 by default. Other elements must be equal. Prints each difference
// and a summary; exits 1 if there is a difference.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const [packages, folder, tolerance = "1e-6"] = process.argv.slice(2);
const { InferenceSession, Tensor } = require(path.join(packages, "onnxruntime-node"));

// The type and the array of each name of ONNX Runtime.
const arrays = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, int8: Int8Array, uint8: Uint8Array,
  int16: Int16Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array,
};

function decoded({ type, hex, strings }) {
  if (type === "string") return strings;
  const bytes = Buffer.from(hex, "hex");
  const Kind = arrays[type];
  return new Kind(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

// How far the numbers are from the expected ones, as a fraction of the largest finite magnitude of these; 0: equal.
function difference(type, values, expected) {
  if (values.length !== expected.length) return Infinity;
  const real = type === "float32" || type === "float64";
  let largest = 0;
  let furthest = 0;
  for (let i = 0; i < values.length; ++i) {
    const [ours, theirs] = [values[i], expected[i]];
    if (real && Number.isFinite(theirs)) largest = Math.max(largest, Math.abs(theirs));
    if (ours === theirs || (real && Number.isNaN(ours) && Number.isNaN(theirs))) continue;
    furthest = Math.max(furthest, real && Number.isFinite(ours - theirs) ? Math.abs(ours - theirs) : Infinity);
  }
  return furthest === 0 ? 0 : furthest / largest;
}

function shortened(numbers) {
  return numbers.length <= 100 ? `${numbers}` : `${numbers.slice(0, 100)},...`;
}

async function main() {
  const cases = JSON.parse(fs.readFileSync(path.join(folder, "cases.json"), "utf8"));
  let compared = 0;
  let furthest = 0;
  const differences = [];
  for (const one of cases) {
    const session = await InferenceSession.create(path.join(folder, one.model), {
      executionProviders: ["cpu"], intraOpNumThreads: 1, logSeverityLevel: 3,
    });
    for (const batch of one.batches) {
      const feeds = {};
      for (const input of batch.inputs) feeds[input.name] = new Tensor(input.type, decoded(input), input.dims);
      const results = await session.run(feeds, batch.outputs.map((output) => output.name));
      for (const ours of batch.outputs) {
        const theirs = results[ours.name];
        const values = Array.from(decoded(ours));
        const expected = Array.from(theirs.data);
        const alike = theirs.type === ours.type && String(theirs.dims) === String(ours.dims);
        const far = alike ? difference(ours.type, values, expected) : Infinity;
        furthest = Math.max(furthest, far);
        if (!(far <= Number(tolerance))) {
          differences.push(`${one.model} ${ours.name} ${ours.type}[${ours.dims}] ${shortened(values)} and ${theirs.type}` +
            `[${theirs.dims}] ${shortened(expected)}: ${far}`);
        }
        ++compared;
      }
    }
    await session.release();
  }
  for (const difference of differences) console.log(difference);
  console.log(`${cases.length} models, ${compared} outputs, ${differences.length} differences, ` +
    `at most ${furthest.toExponential(1)} apart`);
  process.exitCode = differences.length === 0 ? 0 : 1;
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
