// Tint, by way of Dawn: accepts every kernel of given.json, and runs its MTTKRPs. See tests/dawn.sh.
//   node tests/dawn.mjs FOLDER      FOLDER has given.json and node_modules/webgpu
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = resolve(process.argv[2] ?? '.');
const entry = createRequire(join(folder, 'x.js')).resolve('webgpu');
const { create, globals } = await import(pathToFileURL(entry));
Object.assign(globalThis, globals);
const given = JSON.parse(readFileSync(join(folder, 'given.json')));

// Kept: what is collected while Dawn works ends the process.
const gpu = create([]);
const adapter = await gpu.requestAdapter();
if (!adapter) throw new Error('Dawn has no adapter');
const device = await adapter.requestDevice();
console.log(`Dawn on ${adapter.info.description || adapter.info.device}`);
const kept = [];
let failures = 0;
const fail = (text) => { failures++; console.log(`FAILED ${text}`); };

for (const { name, wgsl } of given.kernels) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code: wgsl });
  kept.push(module);
  const info = await module.getCompilationInfo();
  const error = await device.popErrorScope();
  const wrong = info.messages.filter((m) => m.type === 'error');
  if (error || wrong.length) fail(`${name}: ${wrong.map((m) => `${m.lineNum}: ${m.message}`).join('; ') || error.message}`);
}
console.log(`${given.kernels.length} kernels given to Tint, ${failures} refused`);

const U = GPUBufferUsage;
async function run(test) {
  const buffers = {};
  for (const [slot, content] of Object.entries(test.buffers)) {
    const data = content.f32 ? new Float32Array(content.f32) : null;
    const size = Math.max(32, Math.ceil((data ? data.byteLength : content.bytes) / 32) * 32);
    buffers[slot] = device.createBuffer({ size, usage: U.STORAGE | U.COPY_DST | U.COPY_SRC });
    if (data) device.queue.writeBuffer(buffers[slot], 0, data);
  }
  const encoder = device.createCommandEncoder();
  for (const { wgsl, params, slots, grid } of test.dispatches) {
    const uniform = device.createBuffer({ size: params.length, usage: U.UNIFORM | U.COPY_DST });
    device.queue.writeBuffer(uniform, 0, new Uint8Array(params));
    const type = (index) => (index === 0 ? 'uniform' : index === slots.length ? 'storage' : 'read-only-storage');
    const layout = device.createBindGroupLayout({
      entries: [...Array(slots.length + 1).keys()].map((binding) => ({
        binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: type(binding) },
      })),
    });
    const pipeline = device.createComputePipeline({
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: device.createShaderModule({ code: wgsl }), entryPoint: 'main' },
    });
    const entries = [uniform, ...slots.map((slot) => buffers[slot])];
    const group = device.createBindGroup({
      layout, entries: entries.map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...grid);
    pass.end();
  }
  const g = buffers['G(0)'];
  const read = device.createBuffer({ size: g.size, usage: U.MAP_READ | U.COPY_DST });
  encoder.copyBufferToBuffer(g, 0, read, 0, g.size);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  const found = new Float32Array(read.getMappedRange());
  let most = 0;
  test.expected.forEach((expected, at) => {
    const row = Math.floor(at / test.rank);
    const error = Math.abs(found[row * test.stride + (at % test.rank)] - expected);
    most = Math.max(most, error === 0 ? 0 : Number.isNaN(error) ? Infinity : error / test.bound[at]);
  });
  return most;
}

for (const test of given.cases) {
  device.pushErrorScope('validation');
  let most = Infinity;
  try { most = await run(test); } catch (error) { fail(`${test.name}: ${error}`); }
  const error = await device.popErrorScope();
  if (error) fail(`${test.name}: ${error.message}`);
  else if (!(most <= 1)) fail(`${test.name}: the error is ${most} of its bound`);
  else console.log(`${test.name}: ${most.toFixed(3)} of its bound`);
}
// The comparison can fail: one operand changed.
const changed = structuredClone(given.cases[0]);
changed.buffers['X(0)'].f32[0] += 1;
if ((await run(changed)) <= 1) fail('a changed tensor has the same result');
console.log(failures ? `${failures} failures` : `all ${given.cases.length} MTTKRPs as on the CPU`);
process.exit(failures ? 1 : 0);
