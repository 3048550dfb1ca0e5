// The page: what is shown, what the user does, and what is asked of the worker.
//
// Moving never waits: the last picture is drawn at its new place at once, and a new one is asked for when the worker has
// none to make. A picture reaches half a view beyond each side.
'use strict';

const began = performance.now();
const $ = id => document.getElementById(id);
const meta = JSON.parse($('names').textContent);
const TABS = ['Timeline', 'Fragmentation', 'Segments', 'Holders', 'Out of memory', 'Compare'];
const state = {
  tab: 0, device: 0, axis: 'entries', view: null, picture: null, wanted: 0, busy: false, stale: true, hover: null, held: null,
  moment: null, search: '', stack: undefined, matches: null, scroll: 0, rows: [], dark: matchMedia('(prefers-color-scheme: dark)').matches,
};
let names, devices, look, worker, nextId = 0;
const waiting = new Map();
// For tests and for the curious: when things were done, in milliseconds.
window.viewer = { state, meta, times: {}, frames: 0, ask, show, fit, goTo };

function ask(request) {
  return new Promise((resolve, reject) => {
    const id = nextId++;
    waiting.set(id, { resolve, reject });
    worker.postMessage({ ...request, id });
  });
}

function say(text) {
  $('message').textContent = text;
  $('message').hidden = !text;
}

async function begin() {
  document.documentElement.dataset.theme = state.dark ? 'dark' : 'light';
  $('title').textContent = meta.title;
  worker = new Worker(URL.createObjectURL(new Blob([$('worker').textContent], { type: 'text/javascript' })));
  worker.onmessage = ({ data: { id, answer, error } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(error)); else resolve(answer);
  };
  worker.onerror = event => say(`The worker failed: ${event.message}`);
  const opened = await ask({ ask: 'open', data: $('data').textContent.trim(), texts: meta.texts, dark: state.dark });
  $('data').remove();
  names = new Names(meta.texts, opened.frames, opened.stacks);
  devices = opened.devices;
  look = new Look(opened.stacks.length, state.dark);
  viewer.times.opened = performance.now() - began;
  viewer.times.worker = opened.times;
  $('device').append(...devices.map((device, index) => element('option', { value: index }, `cuda:${index}`)));
  $('device').hidden = devices.length < 2;
  $('tabs').append(...TABS.map((name, index) => element('button', { role: 'tab', onclick: () => show(index) }, index === 4 && meta.shortages.length ? `${name} (${meta.shortages.length})` : name)));
  state.device = Math.max(0, devices.findIndex(device => device.entries || device.segments.length));
  $('device').value = state.device;
  listen();
  fit();
  show(devices[state.device].entries || !devices[state.device].segments.length ? 0 : 2);
  say('');
  viewer.times.shown = performance.now() - began;
}

const device = () => devices[state.device];
const length = () => state.axis === 'time' ? Math.max(1, device().last - device().first) : Math.max(1, device().entries + 1);

function fit() {
  const most = Math.max(device().most, device().mostReserved, 1);
  state.view = { from: 0, to: length(), low: 0, high: most * 1.04 };
  change();
}

function show(tab) {
  state.tab = tab;
  [...$('tabs').children].forEach((button, index) => button.setAttribute('aria-selected', index === tab));
  $('table').hidden = tab < 3;
  $('axis').textContent = state.axis === 'time' ? 'Time' : 'Entries';
  $('frames').textContent = names.all ? 'All frames' : 'Own frames';
  $('theme').textContent = state.dark ? 'Dark' : 'Light';
  if (tab === 2) sortSegments();
  if (tab === 3) showHolders();
  if (tab === 4) $('table').replaceChildren(...shortageCards(meta.shortages, names, goTo));
  if (tab === 5) $('table').replaceChildren(...comparison(meta.compare, meta.now, meta.title, state.search, names.all));
  change();
}

async function showHolders() {
  const held = await ask({ ask: 'holders', device: state.device, moment: state.moment ?? device().peak });
  if (state.tab === 3) $('table').replaceChildren(...holdersTable(held, names, stackColour, chooseStack, state.stack));
}

function chooseStack(stack) {
  state.stack = state.stack === stack ? undefined : stack;
  $('details').replaceChildren(element('h2', {}, 'Stack'), names.list(stack, state.search));
  search().then(() => show(state.tab));
}

// Where on the axis a request failed.
const placeOf = shortage => state.axis === 'time' ? shortage.time - device().first : shortage.entry;

// To a request that could not be served, with some entries around it.
function goTo(shortage) {
  state.device = shortage.device;
  $('device').value = shortage.device;
  fit();
  const around = state.axis === 'time' ? length() / 50 : Math.min(device().entries, 400) / 2;
  const place = placeOf(shortage);
  Object.assign(state.view, { from: place - around, to: place + around });
  state.moment = shortage.entry;
  state.shortage = shortage;
  $('details').replaceChildren(element('h2', {}, `${humanBytes(shortage.requested)} could not be had`), element('p', {}, `${shortage.reason}.`), names.list(shortage.stack, state.search));
  show(0);
}

function stackColour(stack, index = 0) {
  const pixel = look.shades[index & 1][look.number[stack]];
  return `rgb(${pixel & 255},${pixel >> 8 & 255},${pixel >> 16 & 255})`;
}

// Something that decides the picture is different now.
function change() {
  state.stale = true;
  schedule();
}

let scheduled = false;
function schedule() {
  if (!scheduled) {
    scheduled = true;
    requestAnimationFrame(draw);
  }
}

function draw() {
  scheduled = false;
  viewer.frames++;
  const overlay = $('overlay'), ratio = window.devicePixelRatio || 1;
  const width = overlay.clientWidth, height = overlay.clientHeight;
  for (const canvas of [$('picture'), overlay]) {
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      state.stale = true;
    }
  }
  if (!width || !height || !state.view) return;
  const context = overlay.getContext('2d'), back = $('picture').getContext('2d');
  for (const one of [context, back]) {
    one.setTransform(ratio, 0, 0, ratio, 0, 0);
    one.clearRect(0, 0, width, height);
  }
  if (state.tab < 2) {
    if (state.picture && state.picture.device === state.device && state.picture.axis === state.axis) drawPicture(back, context, width, height);
    if (state.stale && !state.busy) refresh(Math.round(width * ratio), Math.round(height * ratio));
  } else if (state.tab === 2) {
    drawSegments(context, width, height, state.rows, state.scroll, stackColour, stack => !state.matches || state.matches[stack]);
  }
}

function drawPicture(back, context, width, height) {
  const { view, picture } = state;
  if (state.tab === 1) {
    drawFragmentation(context, width, height, view, picture);
  } else {
    const x = place => (place - view.from) / (view.to - view.from) * width, y = bytes => height - (bytes - view.low) / (view.high - view.low) * height;
    back.imageSmoothingEnabled = false;
    back.drawImage(picture.image, x(picture.from), y(picture.high), x(picture.to) - x(picture.from), y(picture.low) - y(picture.high));
    drawCurve(context, width, height, view, picture, picture.reserved, bytes => (bytes - view.low) / (view.high - view.low), css('--reserved'), true);
  }
  if (state.tab === 0) drawAxes(context, width, height, view, state.axis === 'time' ? humanTime : humanCount);
  for (const one of meta.shortages) {
    if (one.device === state.device) drawMark(context, (placeOf(one) - view.from) / (view.to - view.from) * width, height, css('--alarm'), one === state.shortage);
  }
  if (state.axis === 'time') drawAnnotations(context, width, height, view, meta.annotations.filter(one => one[2] === state.device), device().first);
  if (state.hover) drawMark(context, state.hover.x, height, css('--faint'), false);
}

function drawMark(context, x, height, colour, strong) {
  context.fillStyle = colour;
  context.fillRect(Math.round(x), 0, strong ? 3 : 1, height);
}

async function refresh(width, height) {
  const { view } = state, wide = view.to - view.from;
  const from = Math.max(0, view.from - wide / 2), to = Math.min(length(), view.to + wide / 2);
  state.stale = false;
  if (to <= from) return;
  state.busy = true;
  const request = {
    ask: 'render', device: state.device, axis: state.axis, from, to, low: view.low, high: view.high,
    width: Math.max(1, Math.min(4096, Math.round(width * (to - from) / wide))), height, dark: state.dark,
  };
  const answer = await ask(request);
  const image = new OffscreenCanvas(request.width, height);
  image.getContext('2d').putImageData(new ImageData(new Uint8ClampedArray(answer.pixels.buffer), request.width, height), 0, 0);
  state.picture = { ...request, ...answer, image };
  state.busy = false;
  viewer.times.picture = answer.took;
  viewer.times.firstPicture ??= performance.now() - began;
  tell();
  schedule();
}

function tell() {
  const { picture, hover } = state, one = device();
  const parts = [`${humanCount(one.entries)} entries, ${humanCount(one.lives)} allocations`, `peak ${humanBytes(one.most)} at entry ${humanCount(one.peak)}`];
  if (hover && picture && hover.column !== undefined) {
    parts.push(`entry ${humanCount(picture.moments[hover.column])}: ${humanBytes(picture.live[hover.column])} in use, ${humanBytes(picture.reserved[hover.column])} reserved`);
  }
  $('status').replaceChildren(...parts.map(part => element('span', {}, part)));
}

async function search() {
  const answer = await ask({ ask: 'search', text: state.search, stack: state.stack });
  state.matches = answer.matches ?? null;
  $('found').textContent = answer.stacks < 0 ? '' : `${humanCount(answer.stacks)} stacks`;
  change();
}

function sortSegments() {
  state.rows = device().segments.map(segment => {
    let free = 0;
    for (let block = 0; block < segment.blocks.size.length; block++) if (!segment.blocks.state[block]) free += segment.blocks.size[block];
    return { ...segment, free };
  });
  state.scroll = Math.max(0, Math.min(state.scroll, state.rows.length * ROW - $('overlay').clientHeight));
}

// Moves the view by parts of its width and height.
function move(along, up) {
  const { view } = state, wide = view.to - view.from, tall = view.high - view.low;
  view.from += along * wide;
  view.to += along * wide;
  const rise = Math.max(-view.low, up * tall);
  view.low += rise;
  view.high += rise;
  clampView();
}

// Nearer (factor below 1) or farther, at a place of the view from 0 to 1.
function zoom(factor, at, inHeight, height) {
  const { view } = state;
  if (inHeight) {
    const bytes = view.low + height * (view.high - view.low), tall = Math.max(64, (view.high - view.low) * factor);
    view.low = Math.max(0, bytes - height * tall);
    view.high = view.low + tall;
  } else {
    const place = view.from + at * (view.to - view.from), wide = Math.max(8, Math.min(length() * 1.2, (view.to - view.from) * factor));
    view.from = place - at * wide;
    view.to = view.from + wide;
  }
  clampView();
}

function clampView() {
  const { view } = state, wide = view.to - view.from, end = length();
  const from = Math.max(-wide / 4, Math.min(end - wide * 3 / 4, view.from));
  view.from = wide >= end ? Math.min(0, from) : from;
  view.to = view.from + wide;
  change();
}

function setTheme(dark) {
  state.dark = dark;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  look = new Look(names.stacks.length, dark);
  show(state.tab);
}

function setAxis() {
  state.axis = state.axis === 'time' ? 'entries' : 'time';
  fit();
  show(state.tab);
}

function setFrames() {
  names.all = !names.all;
  if (state.stack !== undefined) $('details').replaceChildren(element('h2', {}, 'Stack'), names.list(state.stack, state.search));
  show(state.tab);
}

function nextShortage(step) {
  if (!meta.shortages.length) return;
  const at = meta.shortages.indexOf(state.shortage), count = meta.shortages.length;
  goTo(meta.shortages[((at < 0 && step < 0 ? 0 : at) + step + count) % count]);
}

function letGo() {
  Object.assign(state, { held: null, stack: undefined, search: '', shortage: null });
  $('search').value = '';
  $('details').replaceChildren(element('p', { class: 'faint' }, 'Point at an allocation to see where it came from.'));
  search();
}
