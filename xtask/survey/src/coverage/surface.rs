//! The public items of `cuda-api` as one finds them under PyTorch's names: functions and types by module, the members of
//! types, also of those that come from `c10-core`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustdoc_types::{Crate, Id, Item, ItemEnum, Type};

use crate::rustdoc;

/// An item that can stand for a name of PyTorch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name in Rust.
    pub(crate) name: String,
    /// The modules below `cuda_api` that lead to it, or the type it is a member of.
    pub(crate) owner: String,
    /// Its `#[doc(alias)]` names.
    pub(crate) aliases: Vec<String>,
    /// Whether it is a type or a trait, which a test may use without its name.
    pub(crate) is_type: bool,
    /// Where it is defined, from the workspace's root.
    pub(crate) file: PathBuf,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Surface {
    /// Functions, types, constants.
    pub(crate) items: Vec<Found>,
    /// Methods, fields, variants; the owner is the name of their type.
    pub(crate) members: Vec<Found>,
}

impl Surface {
    /// Reads what `api`, one of the crates, shows.
    pub(crate) fn new(crates: &BTreeMap<String, Crate>, api: &str) -> Self {
        let mut surface = Self::default();
        let Some(krate) = crates.get(api) else { return surface };
        for (path, id) in rustdoc::public(krate) {
            let Some((home, item)) = resolve(crates, krate, id) else { continue };
            if matches!(item.inner, ItemEnum::Module(_)) {
                continue;
            }
            let (name, owner) = (path.last().cloned().unwrap_or_default(), path[1..path.len() - 1].join("::"));
            for (_, member) in members(crates, home, item) {
                let member_name = member.name.clone().unwrap_or_default();
                surface.members.extend(found(member, member_name, name.clone()));
            }
            surface.items.extend(found(item, name, owner));
        }
        surface
    }

    /// The item that stands for a name of PyTorch in a section of the page.
    pub(crate) fn find(&self, section: &str, name: &str) -> Option<&Found> {
        let (owner, word) = name.rsplit_once('.').unwrap_or(("", name));
        // The underscore that marks a private name in Python is dropped in Rust.
        let has_name = |found: &&Found| found.name == word.trim_start_matches('_');
        let has_alias = |found: &&Found| found.aliases.iter().any(|alias| alias == word);
        let (all, owners) = if owner.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            (&self.members, Some(vec![owner.to_owned()]))
        } else {
            (&self.items, modules(section, owner))
        };
        let here = || all.iter().filter(|found| owners.as_ref().is_none_or(|owners| owners.contains(&found.owner)));
        here().find(has_name).or_else(|| here().find(has_alias))
    }

    /// The item of a path as Rust writes it: `cuda_api::module::name` or `Type::name`.
    pub(crate) fn at(&self, path: &str) -> Option<&Found> {
        let (owner, name) = path.rsplit_once("::")?;
        let module = owner.strip_prefix("cuda_api").map(|rest| rest.trim_start_matches("::"));
        let (all, owner) = module.map_or((&self.members, owner), |module| (&self.items, module));
        all.iter().find(|found| found.owner == owner && found.name == name)
    }
}

/// The modules of `cuda_api` in which a name of a section may stand; `None` where any will do.
fn modules(section: &str, owner: &str) -> Option<Vec<String>> {
    if !owner.is_empty() {
        // As with names, the underscore of private modules is dropped.
        return Some(vec![owner.trim_start_matches('_').replace('.', "::")]);
    }
    let module = section.strip_prefix("`torch.")?.strip_suffix('`')?;
    let below = module.strip_prefix("cuda").map(|rest| rest.trim_start_matches('.').replace('.', "::"));
    // PyTorch shows most names of its modules in `torch.cuda` too, and so may we.
    Some(below.map_or_else(|| vec![module.replace('.', "::")], |below| vec![below, String::new()]))
}

fn found(item: &Item, name: String, owner: String) -> Option<Found> {
    let is_type = matches!(item.inner, ItemEnum::Struct(_) | ItemEnum::Enum(_) | ItemEnum::Trait(_));
    Some(Found { name, owner, aliases: aliases(item), is_type, file: rustdoc::file(item)?.to_owned() })
}

/// The other names that an item is found under: those of its `#[doc(alias)]`.
fn aliases(item: &Item) -> Vec<String> {
    let mut aliases = Vec::new();
    for attribute in &item.attrs {
        if let rustdoc_types::Attribute::Other(text) = attribute
            && text.starts_with("#[doc(alias")
        {
            aliases.extend(text.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    aliases
}

/// The item behind a number of a crate, in the crate that defines it.
fn resolve<'a>(crates: &'a BTreeMap<String, Crate>, krate: &'a Crate, id: Id) -> Option<(&'a Crate, &'a Item)> {
    if let Some(item) = krate.index.get(&id) {
        return Some((krate, item));
    }
    let wanted = krate.paths.get(&id)?;
    let home = crates.get(wanted.path.first()?)?;
    let here = |(_, summary): &(&Id, &rustdoc_types::ItemSummary)| {
        summary.crate_id == 0 && summary.path == wanted.path && summary.kind == wanted.kind
    };
    let (id, _) = home.paths.iter().find(here)?;
    Some((home, home.index.get(id)?))
}

/// The members of a type, with those of the type it dereferences to.
fn members<'a>(crates: &'a BTreeMap<String, Crate>, krate: &'a Crate, item: &'a Item) -> Vec<(&'a Crate, &'a Item)> {
    let (own, blocks): (Vec<Id>, &[Id]) = match &item.inner {
        ItemEnum::Struct(it) => (fields(&it.kind), &it.impls),
        ItemEnum::Enum(it) => (it.variants.clone(), &it.impls),
        ItemEnum::Trait(it) => (it.items.clone(), &[]),
        _ => return Vec::new(),
    };
    let mut members: Vec<(&Crate, &Item)> = Vec::new();
    let mut add = |ids: &[Id]| members.extend(ids.iter().filter_map(|id| Some((krate, krate.index.get(id)?))));
    add(&own);
    let mut target = None;
    for block in blocks.iter().filter_map(|id| krate.index.get(id)) {
        let ItemEnum::Impl(block) = &block.inner else { continue };
        add(&block.items);
        if block.trait_.as_ref().is_some_and(|path| path.path.ends_with("Deref")) {
            target = block.items.iter().filter_map(|id| krate.index.get(id)).find_map(associated);
        }
    }
    if let Some((home, item)) = target.and_then(|id| resolve(crates, krate, id)) {
        members.extend(self::members(crates, home, item));
    }
    members
}

/// The public fields of a structure that are listed by name.
fn fields(kind: &rustdoc_types::StructKind) -> Vec<Id> {
    match kind {
        rustdoc_types::StructKind::Plain { fields, .. } => fields.clone(),
        rustdoc_types::StructKind::Unit | rustdoc_types::StructKind::Tuple(_) => Vec::new(),
    }
}

/// The type that an associated type stands for.
fn associated(item: &Item) -> Option<Id> {
    match &item.inner {
        ItemEnum::AssocType { type_: Some(Type::ResolvedPath(path)), .. } => Some(path.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface() -> Surface {
        let found = |owner: &str, name: &str, alias: &str| Found {
            name: name.to_owned(),
            owner: owner.to_owned(),
            aliases: vec![alias.to_owned()],
            is_type: false,
            file: PathBuf::from("x.rs"),
        };
        Surface {
            items: vec![
                found("", "set_settings", ""),
                found("memory", "checkpoint", "_cuda_getState"),
                found("nvtx", "mark", ""),
            ],
            members: vec![found("Stream", "query", ""), found("Event", "handle", "ipc_handle")],
        }
    }

    #[test]
    fn a_name_is_looked_for_where_its_section_says() {
        let surface = surface();
        let find = |section: &str, name: &str| surface.find(section, name).map(|found| found.name.as_str());
        assert_eq!(find("`torch.cuda.memory`", "_set_settings"), Some("set_settings"));
        assert_eq!(find("`torch.cuda`", "_set_settings"), Some("set_settings"));
        assert_eq!(find("`torch.cuda`", "mark"), None);
        assert_eq!(find("`torch.cuda.nvtx`", "mark"), Some("mark"));
        assert_eq!(find("NVTX", "nvtx.mark"), Some("mark"));
        assert_eq!(find("`torch.backends.cuda`", "set_settings"), None);
        assert_eq!(find("Memory, further names", "_cuda_getState"), Some("checkpoint"));
        assert_eq!(find("Memory, further names", "cuda_getState"), None);
    }

    #[test]
    fn members_belong_to_their_type() {
        let surface = surface();
        let find = |name: &str| surface.find("`torch.cuda.Stream` members", name).map(|found| found.name.as_str());
        assert_eq!(find("Stream.query"), Some("query"));
        assert_eq!(find("Event.query"), None);
        assert_eq!(find("Event.ipc_handle"), Some("handle"));
    }

    #[test]
    fn a_path_leads_to_one_item() {
        let surface = surface();
        let at = |path: &str| surface.at(path).map(|found| found.owner.as_str());
        assert_eq!(at("cuda_api::set_settings"), Some(""));
        assert_eq!(at("cuda_api::nvtx::mark"), Some("nvtx"));
        assert_eq!(at("cuda_api::mark"), None);
        assert_eq!(at("Stream::query"), Some("Stream"));
    }
}
