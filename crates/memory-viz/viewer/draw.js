// What the page draws itself: axes, curves, segments. The pictures of lives come from the worker.
'use strict';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function humanBytes(count, digits = 1) {
  const sign = count < 0 ? '-' : '';
  let amount = Math.abs(count), unit = 0;
  while (amount >= 1024 && unit < 4) { amount /= 1024; unit++; }
  return `${sign}${unit ? amount.toFixed(digits) : amount} ${UNITS[unit]}`;
}

const humanCount = count => count.toLocaleString('en-US');

function humanTime(microseconds) {
  const amount = Math.abs(microseconds);
  if (amount < 1e3) return `${microseconds.toFixed(0)} us`;
  if (amount < 1e6) return `${(microseconds / 1e3).toFixed(2)} ms`;
  return `${(microseconds / 1e6).toFixed(3)} s`;
}

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Round numbers between two bounds; with `binary` multiples of powers of two.
function ticks(low, high, most, binary) {
  const rough = (high - low) / most;
  const base = binary ? 2 ** Math.floor(Math.log2(Math.max(rough, 1))) : 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = (binary ? [1, 2, 4] : [1, 2, 5, 10]).map(factor => factor * base).find(one => one >= rough) ?? base * 10;
  const all = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) all.push(tick);
  return all;
}

function drawAxes(context, width, height, view, labelOf) {
  context.font = '11px system-ui, "Open Sans", sans-serif';
  context.textBaseline = 'bottom';
  context.lineWidth = 1;
  for (const tick of ticks(view.low, view.high, height / 60, true)) {
    const y = Math.round(height - (tick - view.low) / (view.high - view.low) * height) + 0.5;
    context.strokeStyle = css('--line');
    context.globalAlpha = 0.5;
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.stroke();
    context.globalAlpha = 1;
    label(context, humanBytes(tick), 4, y - 1);
  }
  for (const tick of ticks(view.from, view.to, width / 130, false)) {
    const x = Math.round((tick - view.from) / (view.to - view.from) * width) + 0.5;
    context.fillStyle = css('--faint');
    context.fillRect(x, height - 5, 1, 5);
    label(context, labelOf(tick), x + 3, height - 1);
  }
}

// Text with the background's colour around it, so that it can be read on any picture.
function label(context, text, x, y) {
  context.lineWidth = 3;
  context.strokeStyle = css('--back');
  context.strokeText(text, x, y);
  context.lineWidth = 1;
  context.fillStyle = css('--text');
  context.fillText(text, x, y);
}

// A curve of values that stand for the columns of a picture, at its place in the view.
function drawCurve(context, width, height, view, picture, values, scale, colour, dashed) {
  const unit = (picture.to - picture.from) / values.length;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.setLineDash(dashed ? [6, 4] : []);
  context.beginPath();
  for (let column = 0; column < values.length; column++) {
    const x = (picture.from + (column + 0.5) * unit - view.from) / (view.to - view.from) * width;
    if (x < -2 || x > width + 2) continue;
    context.lineTo(x, height - scale(values[column]) * height);
  }
  context.stroke();
  context.setLineDash([]);
}

function drawFragmentation(context, width, height, view, picture) {
  const most = picture.reserved.reduce((most, one) => Math.max(most, one), 1) * 1.08, half = height * 0.62, rest = height - half - 24;
  const ofBytes = value => value / most * half / height + (height - half) / height;
  const share = (reserved, live) => reserved > 0 ? Math.max(0, 1 - live / reserved) : 0;
  const shares = picture.reserved.map((reserved, column) => share(reserved, picture.live[column]));
  const ofShare = value => (4 + value * (rest - 14)) / height;
  context.fillStyle = css('--panel');
  context.fillRect(0, half + 12, width, 1);
  drawCurve(context, width, height, view, picture, picture.reserved, ofBytes, css('--reserved'), true);
  drawCurve(context, width, height, view, picture, picture.live, ofBytes, css('--accent'), false);
  drawCurve(context, width, height, view, picture, shares, ofShare, css('--alarm'), false);
  context.font = '12px system-ui, "Open Sans", sans-serif';
  context.textBaseline = 'top';
  for (const tick of ticks(0, most, 6, true)) label(context, humanBytes(tick), 4, half - tick / most * half - 12);
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) label(context, `${tick * 100} %`, 4, height - ofShare(tick) * height - 12);
  for (const [text, colour, y] of [['reserved', '--reserved', 4], ['in use', '--accent', 20], ['reserved and not in use', '--alarm', half + 20]]) {
    context.fillStyle = css(colour);
    context.fillRect(width - 190, y + 6, 14, 3);
    label(context, text, width - 170, y);
  }
}

// Where the ranges of a profiler begin and end; names only where there is room.
function drawAnnotations(context, width, height, view, annotations, first) {
  let free = 0;
  for (const [name, stage, , time] of annotations) {
    const x = (time - first - view.from) / (view.to - view.from) * width;
    if (x < 0 || x > width) continue;
    context.fillStyle = css(stage === 'START' ? '--good' : '--faint');
    context.fillRect(Math.round(x), 0, 1, stage === 'START' ? height : 10);
    if (stage !== 'START' || x < free) continue;
    context.textBaseline = 'top';
    label(context, name, x + 3, 2);
    free = x + 8 + context.measureText(name).width;
  }
}

const ROW = 24, LABEL = 330;

// The segments as rows of blocks; only those that can be seen are drawn.
function drawSegments(context, width, height, rows, scroll, stackColour, isMatch) {
  context.font = '11px system-ui, "Open Sans", sans-serif';
  context.textBaseline = 'middle';
  const first = Math.floor(scroll / ROW), last = Math.min(rows.length, Math.ceil((scroll + height) / ROW));
  for (let index = first; index < last; index++) {
    const segment = rows[index], y = index * ROW - scroll;
    context.fillStyle = css('--text');
    const pool = segment.pool[0] || segment.pool[1] ? ` pool ${segment.pool.join('.')}` : '';
    const kind = `${segment.expandable ? ' expandable' : ''}${segment.small ? ' small' : ''}${pool}`;
    context.fillText(`0x${segment.address.toString(16)}  ${humanBytes(segment.size)}  ${humanBytes(segment.free)} free${kind}`, 8, y + ROW / 2);
    drawBlocks(context, segment, LABEL, y + 3, width - LABEL - 10, ROW - 6, stackColour, isMatch);
  }
}

function drawBlocks(context, segment, left, top, width, height, stackColour, isMatch) {
  const { address, size, state, stack } = segment.blocks;
  context.fillStyle = css('--hole');
  context.fillRect(left, top, width, height);
  let painted = left;
  for (let block = 0; block < size.length; block++) {
    if (!state[block]) continue;
    const begin = left + (address[block] - segment.address) / segment.size * width;
    const end = begin + size[block] / segment.size * width;
    if (end - painted < 0.3) continue;
    context.fillStyle = isMatch(stack[block]) ? stackColour(stack[block], block) : css('--line');
    context.globalAlpha = state[block] === 2 ? 0.45 : 1;
    context.fillRect(Math.max(begin, painted), top, Math.max(0.6, end - Math.max(begin, painted) - (end - begin > 3 ? 1 : 0)), height);
    painted = end;
  }
  context.globalAlpha = 1;
}
