// Bundles the dashboard's page and writes it as a C++ source:
//
//   node build.mjs NODE_MODULES OUT_FOLDER
//
// Writes the files for browsers to OUT_FOLDER/dist, and as C++ to OUT_FOLDER/dashboard_assets.cc. The page's files begin with the
// licences of the packages in them, which OUT_FOLDER/licences.txt has, too.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const source = dirname(fileURLToPath(import.meta.url));
const [modules, out] = process.argv.slice(2).map((folder) => resolve(folder));
if (!out) throw new Error("usage: node build.mjs NODE_MODULES OUT_FOLDER");
const { buildSync } = createRequire(join(modules, "package.json"))("esbuild");

const dist = join(out, "dist");
rmSync(dist, { recursive: true, force: true });
mkdirSync(join(dist, "assets"), { recursive: true });
const settings = {
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  loader: { ".svg": "copy" },
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  outdir: join(dist, "assets"),
  nodePaths: [modules],
  legalComments: "inline",
  logLevel: "warning",
};

// A bundled package without a licence fails the build.
function licencesIn(metafile) {
  const folders = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const found = resolve(input).match(/^.*[/]node_modules[/](?:@[^/]+[/])?[^/]+/);
    if (found) folders.add(found[0]);
  }
  return [...folders].sort().map((folder) => {
    const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no file with its licence; the page cannot contain it`);
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
}

const main = [join(source, "main.ts")];
const { metafile } = buildSync({ ...settings, entryPoints: main, metafile: true, write: false });
const licences = licencesIn(metafile);
writeFileSync(join(out, "licences.txt"), licences.join("\n\n"));
const notice = licences.length ? `/*!\n${licences.join("\n").replaceAll("*/", "* /")}*/` : "";
buildSync({ ...settings, entryPoints: main, banner: { js: notice, css: notice } });
buildSync({ ...settings, entryPoints: [join(source, "theme_first.ts"), join(source, "icon.svg")] });

const assets = readdirSync(join(dist, "assets"));
const named = (name, type) => "/assets/" + assets.find((file) => file.startsWith(name + "-") && file.endsWith(type));
const page = readFileSync(join(source, "index.html"), "utf8")
  .replace("%THEME%", named("theme_first", ".js"))
  .replace("%SCRIPT%", named("main", ".js"))
  .replace("%STYLE%", named("main", ".css"))
  .replace("%ICON%", named("icon", ".svg"));
writeFileSync(join(dist, "index.html"), page);

const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const files = [
  { path: "/", file: join(dist, "index.html"), immutable: false },
  ...assets.sort().map((file) => ({ path: "/assets/" + file, file: join(dist, "assets", file), immutable: true })),
];

// Three octal digits per byte, so that no following digit can extend an escape. Short lines compile faster.
function literal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 64) {
    lines.push('    "' + [...bytes.subarray(at, at + 64)].map((byte) => "\\" + byte.toString(8).padStart(3, "0")).join("") + '"');
  }
  return lines.length ? lines.join("\n") : '    ""';
}

let text = `// Made by src/dashboard/build.mjs.\n#include "frontend/endpoints/dashboard_assets.h"\n\nnamespace gpulet::frontend {\nnamespace {\n\n`;
const entries = [];
files.forEach(({ path, file, immutable }, index) => {
  const plain = readFileSync(file);
  const gzip = gzipSync(plain, { level: 9 });
  const etag = createHash("sha256").update(plain).digest("hex").slice(0, 16);
  text += `constexpr char kPlain${index}[] =\n${literal(plain)};\nconstexpr char kGzip${index}[] =\n${literal(gzip)};\n\n`;
  const type = types[basename(file).split(".").pop()];
  entries.push(`    {"${path}", "${type}", "\\"${etag}\\"", ${immutable}, {kPlain${index}, ${plain.length}}, {kGzip${index}, ${gzip.length}}},`);
});
text += `constexpr DashboardAsset kAssets[] = {\n${entries.join("\n")}\n};\n\n}  // namespace\n\n`;
text += "std::span<const DashboardAsset> dashboard_assets() { return kAssets; }\n\n}  // namespace gpulet::frontend\n";
writeFileSync(join(out, "dashboard_assets.cc"), text);
