//! From headers to data: runs bindgen and reads its output back with syn.
//!
//! Functions are taken twice. The main header says which symbols exist today and their signatures; the header of
//! versioned pointer types says which CUDA version introduced each ABI, and gives the signatures of older ABIs that
//! the main header no longer declares.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use quote::ToTokens;
use syn::{FnArg, ForeignItem, GenericArgument, Item, PathArguments, ReturnType, Type};

use crate::Result;
use crate::library::{Library, Versions};

/// What one library's headers say.
pub(crate) struct Parsed {
    /// Types and constants, without functions.
    pub(crate) types: syn::File,
    /// Functions, sorted by symbol.
    pub(crate) functions: Vec<Function>,
}

/// One function of a library, at one ABI.
pub(crate) struct Function {
    /// Exported symbol, for example `cuMemAlloc_v2`.
    pub(crate) symbol: String,
    /// Name without version suffix, for example `cuMemAlloc`.
    pub(crate) base: String,
    /// Version that introduced this ABI (1000 * major + 10 * minor), or 0 where the library does not say.
    pub(crate) version: u32,
    /// Argument names and types as Rust text.
    pub(crate) arguments: Vec<(String, String)>,
    /// What it returns, as Rust text.
    pub(crate) output: String,
}

/// Pointer types by base name, then version.
type ByVersion = BTreeMap<String, BTreeMap<u32, Vec<(String, String)>>>;

/// Reads a library's headers.
pub(crate) fn parse(library: &Library, include: &[PathBuf]) -> Result<Parsed> {
    let versions = match &library.versions {
        Some(versions) => pointer_types(library, versions, include)?,
        None => ByVersion::new(),
    };
    let older = older_functions(library, &versions)?;
    let mut extra_types = BTreeSet::new();
    for (_, text) in older.iter().flat_map(|function| &function.arguments) {
        extra_types.extend(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).map(str::to_owned));
    }
    let mut builder = bindgen_builder(library, include).allowlist_function(library.functions);
    for pattern in library.excluded {
        builder = builder.blocklist_function(pattern);
    }
    for shared in library.shared {
        builder = shared.names.iter().fold(builder, |builder, name| builder.blocklist_type(name));
        builder =
            builder.raw_line(format!("pub use crate::{}::types::{{{}}};", shared.module, shared.names.join(", ")));
    }
    for pattern in library.types {
        builder = builder.allowlist_type(pattern);
    }
    for pattern in library.constants {
        builder = builder.allowlist_var(pattern);
    }
    for name in extra_types.iter().filter(|name| name.starts_with("CU")) {
        builder = builder.allowlist_type(name);
    }
    let file = run(builder, library.headers)?;
    let (types, current) = split(file)?;
    let mut functions = with_versions(current, &versions)?;
    functions.extend(older);
    functions.extend(plain_functions(library));
    functions.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    Ok(Parsed { types, functions })
}

fn bindgen_builder(library: &Library, include: &[PathBuf]) -> bindgen::Builder {
    let gcc_headers = std::process::Command::new("gcc").arg("-print-file-name=include").output();
    let gcc_headers =
        gcc_headers.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    bindgen::Builder::default()
        .clang_args(include.iter().map(|folder| format!("-I{}", folder.display())))
        // libclang from PyPI comes without the compiler's own headers (stddef.h): gcc's serve.
        .clang_args(["-isystem", &gcc_headers])
        .clang_args(library.defines.iter().map(|name| format!("-D{name}")))
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .use_core()
        .ctypes_prefix("core::ffi")
        .generate_comments(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .layout_tests(true)
        .derive_default(false)
        .no_debug(library.status)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_default())
}

fn run(builder: bindgen::Builder, headers: &[&str]) -> Result<syn::File> {
    let includes: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    let bindings = builder.header_contents("wrapper.h", &includes).generate();
    let bindings = bindings.map_err(|error| format!("bindgen failed: {error}"))?;
    syn::parse_file(&bindings.to_string()).map_err(|error| format!("bindgen's output does not parse: {error}"))
}

/// Separates bindgen's output into types and functions.
fn split(mut file: syn::File) -> Result<(syn::File, Vec<Function>)> {
    let mut functions = Vec::new();
    let mut items = Vec::new();
    for item in file.items {
        let Item::ForeignMod(block) = item else {
            items.push(item);
            continue;
        };
        for item in block.items {
            let ForeignItem::Fn(function) = item else { continue };
            let arguments = function.sig.inputs.iter().map(argument).collect::<Result<_>>()?;
            let symbol = function.sig.ident.to_string();
            let output = match &function.sig.output {
                ReturnType::Default => "()".to_owned(),
                ReturnType::Type(_, ty) => type_text(ty),
            };
            functions.push(Function { base: base_name(&symbol).to_owned(), symbol, version: 0, arguments, output });
        }
    }
    file.items = items;
    Ok((file, functions))
}

fn argument(argument: &FnArg) -> Result<(String, String)> {
    let FnArg::Typed(typed) = argument else { return Err("a C function with a receiver".to_owned()) };
    Ok((typed.pat.to_token_stream().to_string(), type_text(&typed.ty)))
}

/// A type as text, with the spaces that token streams put in taken out again.
fn type_text(ty: &Type) -> String {
    let text = ty.to_token_stream().to_string();
    text.replace(" :: ", "::").replace(":: ", "::").replace("* mut", "*mut").replace("* const", "*const")
}

/// Name without a `_vN` suffix.
fn base_name(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((base, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty() => base,
        _ => symbol,
    }
}

/// Reads the header of `PFN_<function>_v<version>` types.
fn pointer_types(library: &Library, versions: &Versions, include: &[PathBuf]) -> Result<ByVersion> {
    let file = run(bindgen_builder(library, include).allowlist_type("PFN_.*"), &[versions.header])?;
    let mut found = ByVersion::new();
    for item in &file.items {
        let Item::Type(alias) = item else { continue };
        let name = alias.ident.to_string();
        let Some((base, version)) = name.strip_prefix("PFN_").and_then(|rest| rest.rsplit_once("_v")) else { continue };
        // A version followed by `_ptsz` or `_ptds` is the per-thread-stream variant of the same ABI.
        let Ok(version) = version.parse::<u32>() else { continue };
        let arguments = pointer_arguments(&alias.ty).ok_or_else(|| format!("{name} is not a function pointer"))?;
        found.entry(base.to_owned()).or_default().insert(version, arguments);
    }
    Ok(found)
}

/// Arguments of `Option<unsafe extern "C" fn(...)>`.
fn pointer_arguments(ty: &Type) -> Option<Vec<(String, String)>> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    let GenericArgument::Type(Type::FnPtr(function)) = arguments.args.first()? else { return None };
    if matches!(function.output, ReturnType::Default) {
        return None;
    }
    let named = function.inputs.iter().enumerate().map(|(index, input)| {
        let name = input.name.as_ref().map_or_else(|| format!("argument_{index}"), |(name, _)| name.to_string());
        (name, type_text(&input.ty))
    });
    Some(named.collect())
}

fn older_functions(library: &Library, versions: &ByVersion) -> Result<Vec<Function>> {
    let Some(wanted) = &library.versions else { return Ok(Vec::new()) };
    let find = |base: &str, version: u32| versions.get(base).and_then(|by_version| by_version.get(&version));
    let make = |older: &crate::library::Older| {
        let arguments = find(older.base, older.version)
            .ok_or_else(|| format!("{} has no ABI of version {} in {}", older.base, older.version, wanted.header))?;
        Ok(Function {
            symbol: older.symbol.to_owned(),
            base: older.base.to_owned(),
            version: older.version,
            arguments: arguments.clone(),
            output: library.status_alias.to_owned(),
        })
    };
    wanted.older.iter().map(make).collect()
}

fn plain_functions(library: &Library) -> impl Iterator<Item = Function> {
    let plain = library.versions.iter().flat_map(|versions| versions.plain);
    plain.map(|plain| Function {
        symbol: plain.symbol.to_owned(),
        base: plain.symbol.to_owned(),
        version: plain.version,
        arguments: Vec::new(),
        output: library.status_alias.to_owned(),
    })
}

/// Gives each symbol of today's header the version that introduced its ABI: among the symbols of one base name the
/// newest suffix belongs to the newest version, and so on downward.
fn with_versions(mut functions: Vec<Function>, versions: &ByVersion) -> Result<Vec<Function>> {
    if versions.is_empty() {
        return Ok(functions);
    }
    let mut by_base: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, function) in functions.iter().enumerate() {
        by_base.entry(function.base.clone()).or_default().push(index);
    }
    for (base, mut indices) in by_base {
        indices.sort_by_key(|&index| std::cmp::Reverse(suffix(&functions[index].symbol)));
        let known = versions.get(&base).ok_or_else(|| format!("{base} has no pointer type"))?;
        for (index, (&version, arguments)) in indices.into_iter().zip(known.iter().rev()) {
            if functions[index].arguments.len() != arguments.len() {
                return Err(format!("{} does not match {base} of version {version}", functions[index].symbol));
            }
            functions[index].version = version;
        }
    }
    match functions.iter().find(|function| function.version == 0) {
        Some(function) => Err(format!("no version found for {}", function.symbol)),
        None => Ok(functions),
    }
}

/// Number of a `_vN` suffix, 1 without one.
fn suffix(symbol: &str) -> u32 {
    symbol.strip_prefix(base_name(symbol)).and_then(|rest| rest.strip_prefix("_v")?.parse().ok()).unwrap_or(1)
}
