// Pointer, wheel and keys.
'use strict';

function listen() {
  const stage = $('stage'), overlay = $('overlay');
  let drag = null;
  overlay.addEventListener('pointerdown', event => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
    overlay.setPointerCapture(event.pointerId);
  });
  overlay.addEventListener('pointermove', event => {
    if (!drag) return point(event);
    const along = drag.x - event.clientX, up = event.clientY - drag.y;
    if (Math.abs(along) + Math.abs(up) < 3 && !drag.moved) return;
    Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
    if (state.tab < 2) move(along / overlay.clientWidth, up / overlay.clientHeight); else scrollBy(-up);
  });
  overlay.addEventListener('pointerup', event => {
    const clicked = drag && !drag.moved;
    drag = null;
    if (clicked) point(event, true);
  });
  overlay.addEventListener('dblclick', () => {
    if (state.tab === 0 && state.held && state.axis === 'entries') wholeLife(state.held);
  });
  overlay.addEventListener('pointerleave', () => {
    state.hover = null;
    schedule();
  });
  overlay.addEventListener('wheel', event => {
    event.preventDefault();
    if (state.tab === 2) return scrollBy(event.deltaY);
    const box = overlay.getBoundingClientRect();
    zoom(1.0015 ** event.deltaY, (event.clientX - box.left) / box.width, event.shiftKey, 1 - (event.clientY - box.top) / box.height);
  }, { passive: false });
  new ResizeObserver(change).observe(stage);
  $('search').addEventListener('input', event => {
    state.search = event.target.value.trim().toLowerCase();
    state.stack = undefined;
    search().then(() => state.tab === 5 && show(5));
  });
  $('device').addEventListener('change', event => {
    state.device = Number(event.target.value);
    Object.assign(state, { picture: null, moment: null, held: null });
    fit();
    show(state.tab);
  });
  $('axis').addEventListener('click', setAxis);
  $('frames').addEventListener('click', setFrames);
  $('theme').addEventListener('click', () => setTheme(!state.dark));
  $('help').addEventListener('click', help);
  document.addEventListener('keydown', key);
  letGo();
}

function scrollBy(amount) {
  state.scroll = Math.max(0, Math.min(state.rows.length * ROW - $('overlay').clientHeight, state.scroll + amount));
  schedule();
}

function help() {
  $('keys').replaceChildren(...keysHelp(() => $('keys').close()));
  $('keys').showModal();
}

// All of a life, with a little around it.
function wholeLife(life) {
  const begin = Math.max(0, life.begin), end = life.end < 0 ? device().entries : life.end, room = Math.max(4, (end - begin) * 0.1);
  Object.assign(state.view, { from: begin - room, to: end + room });
  clampView();
}

let pointing = false, pointNext = null;

// Looks up what is beneath the pointer; while one answer is awaited only the last place counts.
async function point(event, hold = false) {
  const box = $('overlay').getBoundingClientRect();
  const place = { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width, height: box.height, hold };
  if (state.tab === 2) return pointSegment(place);
  if (state.tab > 1 || !state.picture) return;
  state.hover = { x: place.x };
  schedule();
  if (pointing) {
    pointNext = place;
    return;
  }
  pointing = true;
  for (let next = place; next; ) {
    pointNext = null;
    await pointLife(next);
    next = pointNext;
  }
  pointing = false;
}

async function pointLife({ x, y, width, height, hold }) {
  const { view, picture } = state;
  const along = view.from + x / width * (view.to - view.from);
  const column = Math.floor((along - picture.from) / (picture.to - picture.from) * picture.width);
  if (column < 0 || column >= picture.width) return;
  state.hover = { x, column };
  const moment = picture.moments[column];
  tell();
  if (state.held && !hold) return;
  const life = state.tab === 0 ? await ask({ ask: 'pick', device: state.device, moment, height: view.low + (1 - y / height) * (view.high - view.low) }) : null;
  if (hold) {
    state.moment = moment;
    state.held = state.held ? null : life;
  }
  if (life) $('details').replaceChildren(...lifeDetails(life, names, state.search, device().first));
}

function pointSegment({ x, y, width }) {
  const segment = state.rows[Math.floor((y + state.scroll) / ROW)];
  if (!segment) return;
  const at = segment.address + (x - LABEL) / (width - LABEL - 10) * segment.size, { address, size } = segment.blocks;
  let low = 0, high = address.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (address[middle] <= at) low = middle; else high = middle - 1;
  }
  if (address.length && at >= address[low] && at < address[low] + size[low]) {
    $('details').replaceChildren(...blockDetails(segment, low, names, state.search, device().streams));
  }
}

function key(event) {
  if (event.target === $('search')) {
    if (event.key === 'Escape') { letGo(); $('stage').focus(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || $('keys').open || event.target === $('device')) return;
  const along = { ArrowLeft: -0.15, a: -0.15, ArrowRight: 0.15, d: 0.15 }[event.key];
  const nearer = { ArrowUp: 0.8, w: 0.8, ArrowDown: 1.25, s: 1.25 }[event.key];
  if (state.tab === 2 && nearer) scrollBy(nearer < 1 ? -3 * ROW : 3 * ROW);
  else if (along && state.tab < 2) move(along, 0);
  else if (nearer && state.tab < 2) zoom(nearer, 0.5, event.shiftKey, 0.5);
  else if (event.key >= '1' && event.key <= '6') show(Number(event.key) - 1);
  else if (event.key === '0' || event.key === 'Home') fit();
  else if (event.key === '/') $('search').focus();
  else if (event.key === '?') help();
  else if (event.key === 'Escape') letGo();
  else if (event.key === 'l') setTheme(!state.dark);
  else if (event.key === 'x') setAxis();
  else if (event.key === 'f') setFrames();
  else if (event.key === 'n') nextShortage(1);
  else if (event.key === 'p') nextShortage(-1);
  else return;
  event.preventDefault();
}

begin().catch(error => say(`The snapshot cannot be shown: ${error.message}`));
