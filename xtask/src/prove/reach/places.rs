//! Places in the code that some lane has to reach.

use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItemFn, Item, ItemEnum, ItemFn, ItemImpl, ItemMod, Signature, Type, Visibility};

use super::coverage::Position;
use crate::tidy::is_test;
use crate::workspace::root;

/// The crates that the product is made of, and its disks for tests.
const CRATES: [&str; 7] = ["pagefold", "frames", "swap", "io", "test-disks", "span-lock", "smp-list"];
/// How a mark begins, and of what kind it is.
const MARKS: [(&str, Kind); 2] = [("// Transition: ", Kind::Transition), ("// Sometimes: ", Kind::Sometimes)];

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Function,
    Error,
    Transition,
    Sometimes,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Function, Self::Error, Self::Transition, Self::Sometimes];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .zip(["function", "error", "transition", "sometimes"])
            .find(|(_, its)| *its == name)
            .map(|(kind, _)| kind)
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Function => "public functions",
            Self::Error => "variants of errors",
            Self::Transition => "transitions of state tables",
            Self::Sometimes => "rare states",
        }
    }
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    /// Several places may have one name: one of them is enough.
    pub(super) name: String,
    /// From the root of the workspace.
    pub(super) file: PathBuf,
    pub(super) at: Position,
    /// For a function, the end of its body. Any code in the body counts, because the code that runs
    /// first needn't be at its beginning.
    pub(super) end: Option<Position>,
}

/// All places of the product's crates.
pub(super) fn all() -> Result<Vec<Place>, String> {
    let mut files = Vec::new();
    for name in CRATES {
        collect(&Path::new("crates").join(name).join("src"), &mut files)?;
    }
    let parsed: Vec<(PathBuf, String, syn::File)> = files
        .into_iter()
        .map(|path| {
            let text =
                fs::read_to_string(root().join(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
            let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok((path, text, file))
        })
        .collect::<Result<_, String>>()?;
    let mut errors = Errors::default();
    parsed.iter().for_each(|(.., file)| errors.visit_file(file));
    let mut places = Vec::new();
    for (path, text, file) in &parsed {
        let mut search = Search { errors: &errors.0, path, of: Vec::new(), places: &mut places };
        search.visit_file(file);
        marks(path, text, &mut places)?;
    }
    // A variant that nothing makes is a place, too, which nothing reaches.
    for (name, variants) in &errors.0 {
        for variant in variants {
            let name = format!("{name}::{variant}");
            if !places.iter().any(|place| place.kind == Kind::Error && place.name == name) {
                places.push(Place { kind: Kind::Error, name, file: PathBuf::new(), at: (0, 0), end: None });
            }
        }
    }
    Ok(places)
}

/// The sources below `folder`, but for tests and models.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(root().join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = folder.join(entry.file_name());
        if is_test(&path) {
            continue;
        }
        if entry.path().is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    into.sort();
    Ok(())
}

/// Finds the code that follows marks: the next line that isn't a comment or, if this line is an arm
/// of a `match`, what the arm does. It is an error if a mark has no name, or the name of another
/// mark.
fn marks(path: &Path, text: &str, into: &mut Vec<Place>) -> Result<(), String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_code = |(_, line): &(usize, &&str)| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    for (at, line) in lines.iter().enumerate() {
        for (mark, kind) in MARKS {
            let Some(name) = line.trim().strip_prefix(mark) else { continue };
            let name = name.trim_end_matches('.').to_owned();
            if name.is_empty() || into.iter().any(|place| place.kind == kind && place.name == name) {
                return Err(format!("{}:{}: the mark `{name}` has no name of its own", path.display(), at + 1));
            }
            let code = lines.iter().enumerate().skip(at + 1).find(is_code);
            let (next, code) =
                code.ok_or_else(|| format!("{}:{}: no code follows the mark", path.display(), at + 1))?;
            let column = match code.find("=> ") {
                Some(arrow) => arrow + 3,
                None => code.len() - code.trim_start().len(),
            };
            into.push(Place { kind, name, file: path.to_owned(), at: (next + 1, column + 1), end: None });
        }
    }
    Ok(())
}

/// Whether an item isn't compiled into the product that lanes run.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let without = condition.replace("not (pagefold_loom)", "").replace("not (pagefold_manycore)", "");
        ["test", "pagefold_loom", "pagefold_manycore", "pagefold_tsan"]
            .iter()
            .any(|word| without.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == *word))
            && !condition.starts_with("not")
    })
}

/// Public errors, and their variants.
#[derive(Default)]
struct Errors(Vec<(String, Vec<String>)>);

impl<'ast> Visit<'ast> for Errors {
    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        if matches!(item.vis, Visibility::Public(_)) && item.ident.to_string().ends_with("Error") {
            let variants = item.variants.iter().map(|variant| variant.ident.to_string()).collect();
            self.0.push((item.ident.to_string(), variants));
        }
    }
}

/// A walk over a file.
struct Search<'a> {
    errors: &'a [(String, Vec<String>)],
    path: &'a Path,
    /// The types whose `impl`s the walk is in.
    of: Vec<String>,
    places: &'a mut Vec<Place>,
}

impl Search<'_> {
    fn add(&mut self, kind: Kind, name: String, span: proc_macro2::Span) {
        let [at, end] = [span.start(), span.end()].map(|at| (at.line, at.column + 1));
        let end = (kind == Kind::Function).then_some(end);
        self.places.push(Place { kind, name, file: self.path.to_owned(), at, end });
    }

    fn function(&mut self, visibility: &Visibility, signature: &Signature, body: proc_macro2::Span) {
        if matches!(visibility, Visibility::Public(_)) {
            let owner = self.of.last().map(|of| format!("{of}::")).unwrap_or_default();
            let of_crate = self.path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
            let name = format!("{}::{owner}{}", of_crate.unwrap_or_default(), signature.ident);
            self.add(Kind::Function, name, body);
        }
    }

    fn variant(&mut self, path: &syn::Path) {
        let mut segments = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let (Some(variant), Some(owner)) = (segments.next(), segments.next()) else { return };
        let owner = if owner == "Self" { self.of.last().cloned().unwrap_or_default() } else { owner };
        if self.errors.iter().any(|(error, variants)| *error == owner && variants.contains(&variant)) {
            self.add(Kind::Error, format!("{owner}::{variant}"), path.span());
        }
    }
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(ItemFn { attrs, .. }) | Item::Mod(ItemMod { attrs, .. }) | Item::Impl(ItemImpl { attrs, .. }) => {
                attrs
            }
            _ => return visit::visit_item(self, item),
        };
        if !is_left_out(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default(),
            _ => String::new(),
        };
        self.of.push(name);
        visit::visit_item_impl(self, item);
        self.of.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.vis, &item.sig, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_left_out(&item.attrs) {
            self.function(&item.vis, &item.sig, item.block.span());
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Struct(made) => self.variant(&made.path),
            Expr::Path(path) => self.variant(&path.path),
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Kind, String, Position)> {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{error}"));
        let mut errors = Errors::default();
        errors.visit_file(&file);
        let (path, mut places) = (Path::new("crates/io/src/a.rs"), Vec::new());
        Search { errors: &errors.0, path, of: Vec::new(), places: &mut places }.visit_file(&file);
        marks(path, text, &mut places).unwrap_or_else(|error| panic!("{error}"));
        places.into_iter().map(|place| (place.kind, place.name, place.at)).collect()
    }

    #[test]
    fn functions_variants_and_marks_are_found() {
        let text = "pub enum IoError { Gone, Os(i32) }\n\
            struct A;\n\
            impl A {\n\
            pub fn go(&self) -> IoError {\n\
            // Transition: a, b → c.\n\
            IoError::Gone\n\
            }\n\
            fn hidden(&self) -> bool { matches!(x, IoError::Os(_)) }\n\
            #[cfg(test)]\n\
            pub fn tested() {}\n\
            }\n\
            #[cfg(all(test, not(pagefold_loom)))] mod tests { pub fn f() {} }\n\
            #[cfg(not(pagefold_loom))] pub fn real() { if let Err(IoError::Os(1)) = y {} }";
        assert_eq!(
            found(text),
            [
                (Kind::Function, "io::A::go".to_owned(), (4, 29)),
                (Kind::Error, "IoError::Gone".to_owned(), (6, 1)),
                (Kind::Function, "io::real".to_owned(), (13, 42)),
                (Kind::Transition, "a, b → c".to_owned(), (6, 1)),
            ]
        );
    }

    #[test]
    fn a_mark_has_a_name_of_its_own() {
        let marks = |text| marks(Path::new("a"), text, &mut Vec::new());
        assert!(marks("// Sometimes: x\n// Sometimes: y\n// Transition: x\na => b").is_ok());
        assert!(marks("// Sometimes: x\n  // Sometimes: x.\na").is_err());
        assert!(marks("// Transition: .\na").is_err() && marks("// Transition: x.\n").is_err());
    }
}
