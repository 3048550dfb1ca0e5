//! Texts, frames and stacks, each kept once and named by a number.
//!
//! A number is meant for the [`Names`] that gave it. One from elsewhere names something else or nothing: then texts and
//! stacks come out empty, and nothing fails. The stack 0 is the empty one.

use std::collections::HashMap;
use std::sync::Arc;

use super::Action;

/// The number of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(u32);

/// The number of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(u32);

/// The number of a stack; that of [`Default`] is the empty stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl StackId {
    /// The stack without frames: nothing is known.
    pub const EMPTY: Self = Self(0);

    /// The position among the stacks.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl TextId {
    /// The position among the texts.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// The position among the frames.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A call in a stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The function.
    pub name: TextId,
    /// The file; an empty text when nothing is known.
    pub filename: TextId,
    /// The line, counted from 1; 0 when nothing is known.
    pub line: u64,
}

/// Texts, frames and stacks.
#[derive(Debug, Clone)]
pub struct Names {
    texts: Vec<Arc<str>>,
    text_ids: HashMap<Arc<str>, TextId>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, FrameId>,
    stacks: Vec<Arc<[FrameId]>>,
    stack_ids: HashMap<Arc<[FrameId]>, StackId>,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<[FrameId]> = Arc::new([]);
        Self {
            texts: Vec::new(),
            text_ids: HashMap::new(),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: vec![Arc::clone(&empty)],
            stack_ids: HashMap::from([(empty, StackId::EMPTY)]),
        }
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts && self.frames == other.frames && self.stacks == other.stacks
    }
}

/// The number of the next entry of a list. A list that is full names an entry that is not there.
fn next(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl Names {
    /// The number of a text, which is kept if it is new.
    pub fn text(&mut self, text: &str) -> TextId {
        if let Some(id) = self.text_ids.get(text) {
            return *id;
        }
        let (id, kept) = (TextId(next(self.texts.len())), Arc::<str>::from(text));
        self.texts.push(Arc::clone(&kept));
        self.text_ids.insert(kept, id);
        id
    }

    /// The number of a frame, which is kept if it is new.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.frame_ids.get(&frame) {
            return *id;
        }
        let id = FrameId(next(self.frames.len()));
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        id
    }

    /// The number of a stack, innermost frame first, which is kept if it is new.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        if let Some(id) = self.stack_ids.get(frames) {
            return *id;
        }
        let (id, kept) = (StackId(next(self.stacks.len())), Arc::<[FrameId]>::from(frames));
        self.stacks.push(Arc::clone(&kept));
        self.stack_ids.insert(kept, id);
        id
    }

    /// The text of a number.
    #[must_use]
    pub fn text_of(&self, id: TextId) -> &str {
        self.texts.get(id.index()).map_or("", |text| text)
    }

    /// Returns the name of an action, as in the file.
    #[must_use]
    pub fn action_text(&self, action: Action) -> &str {
        if let Action::Other(name) = action { self.text_of(name) } else { action.name() }
    }

    /// The frame of a number.
    #[must_use]
    pub fn frame_of(&self, id: FrameId) -> Frame {
        self.frames.get(id.index()).copied().unwrap_or_default()
    }

    /// The frames of a stack, innermost first.
    #[must_use]
    pub fn frames_of(&self, id: StackId) -> &[FrameId] {
        self.stacks.get(id.index()).map_or(&[], |frames| frames)
    }

    /// A frame as PyTorch's tools print it: `file:line:function`, the file without its folders.
    #[must_use]
    pub fn frame_text(&self, id: FrameId) -> String {
        let frame = self.frame_of(id);
        let (name, file) = (self.text_of(frame.name), self.text_of(frame.filename));
        let file = file.rsplit('/').next().unwrap_or(file);
        if file.is_empty() && frame.line == 0 { name.to_owned() } else { format!("{file}:{}:{name}", frame.line) }
    }

    /// All texts, in the order of their numbers.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    /// All frames, in the order of their numbers.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the ids of all frames, in order.
    pub fn frame_ids(&self) -> impl ExactSizeIterator<Item = FrameId> + use<> {
        (0..next(self.frames.len())).map(FrameId)
    }

    /// All stacks, in the order of their numbers.
    pub fn stacks(&self) -> impl ExactSizeIterator<Item = &[FrameId]> {
        self.stacks.iter().map(|frames| &**frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_has_one_number() {
        let mut names = Names::default();
        let (run, main) = (names.text("run"), names.text("main"));
        assert_eq!(names.text("run"), run);
        let file = names.text("/home/me/train.py");
        let frames = [
            names.frame(Frame { name: run, filename: file, line: 7 }),
            names.frame(Frame { name: main, filename: file, line: 9 }),
        ];
        let stack = names.stack(&frames);
        assert_eq!(names.stack(&frames), stack);
        assert_eq!(names.frames_of(stack), frames);
        assert_eq!(names.frame_text(frames[0]), "train.py:7:run");
        assert_eq!(names.stack(&[]), StackId::EMPTY);
    }

    #[test]
    fn a_number_from_elsewhere_names_nothing() {
        let names = Names::default();
        assert_eq!(names.text_of(TextId(9)), "");
        assert_eq!(names.frames_of(StackId(9)), []);
        assert_eq!(names.frame_text(FrameId(9)), "");
    }
}
