//! Reads the tokens of one file: its modules, its imports, the paths it names, its tests.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Macros that make a test of each function they are given.
const MAKE_TESTS: [&str; 1] = ["on_each_transport"];

/// One path that code names, or one leaf of a `use`.
#[derive(Clone, Debug)]
pub struct Named {
    /// Segments; a glob ends in `*`.
    pub segments: Vec<String>,
    /// The name by which a `use` makes it known, `None` for a path in an expression or type.
    pub known_as: Option<String>,
    /// Where the statement or path begins.
    pub line: usize,
}

/// One module, as far as one file tells of it.
#[derive(Default, Debug)]
pub struct Scope {
    /// Below the file's own module: names of the inline modules around it.
    pub inside: Vec<String>,
    /// Names of modules that lie in files of their own, with whether they are only for tests.
    pub files: Vec<(String, bool)>,
    /// Items that are defined in it.
    pub items: Vec<String>,
    /// What it names.
    pub named: Vec<Named>,
    /// Types that have an inherent `impl` here.
    pub impls: Vec<Named>,
}

/// What is read from one file.
#[derive(Default)]
pub struct Read {
    /// The file's own module first.
    pub scopes: Vec<Scope>,
    /// Names of functions with `#[test]`, in macros too.
    pub tests: Vec<String>,
}

/// Reads a file's text.
///
/// # Panics
///
/// If it is not Rust.
pub fn read(path: &str, text: &str) -> Read {
    let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut read = Read { scopes: vec![Scope::default()], ..Read::default() };
    Reader { read: &mut read, scope: 0 }.level(tokens, true);
    let flat: Vec<TokenTree> = text.parse::<TokenStream>().expect("read above").into_iter().collect();
    tests(&flat, &mut read.tests);
    read
}

struct Reader<'a> {
    read: &'a mut Read,
    scope: usize,
}

impl Reader<'_> {
    fn scope(&mut self) -> &mut Scope {
        &mut self.read.scopes[self.scope]
    }

    /// Goes through one group of tokens; `top` if they are the items of a module.
    fn level(&mut self, stream: TokenStream, top: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        let mut only_tests = false;
        while at < tokens.len() {
            if let Some(group) = attribute(&tokens, at) {
                only_tests |= is_only_for_tests(group);
                at = if is_punct(tokens.get(at + 1), '!') { at + 3 } else { at + 2 };
                continue;
            }
            let begins = at;
            if only_tests {
                only_tests = false;
                if let Some(name) = file_module(&tokens, at) {
                    self.scope().files.push((name, true));
                }
                at = end_of_item(&tokens, at);
                continue;
            }
            at = match &tokens[at] {
                TokenTree::Ident(word) => self.word(&tokens, at, word, top),
                TokenTree::Group(group) => {
                    self.level(group.stream(), false);
                    at + 1
                }
                _ => at + 1,
            };
            assert!(at > begins);
        }
    }

    /// At a word: a module, an import, an item, a path.
    fn word(&mut self, tokens: &[TokenTree], at: usize, word: &Ident, top: bool) -> usize {
        let word_text = word.to_string();
        let next = ident(tokens.get(at + 1));
        match word_text.as_str() {
            "mod" if next.is_some() => {
                let name = next.expect("matched");
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    let mut inside = self.scope().inside.clone();
                    inside.push(name);
                    self.read.scopes.push(Scope { inside, ..Scope::default() });
                    let scope = self.read.scopes.len() - 1;
                    Reader { read: self.read, scope }.level(body.stream(), true);
                } else {
                    self.scope().files.push((name, false));
                }
                return at + 3;
            }
            "use" => {
                let line = word.span().start().line;
                let end = (at..tokens.len()).find(|i| is_punct(tokens.get(*i), ';')).unwrap_or(tokens.len());
                leaves(&tokens[at + 1..end], &[], line, &mut self.scope().named);
                return end;
            }
            "macro_rules" => {
                let name = ident(tokens.get(at + 2));
                self.scope().items.extend(name);
                return at + 3;
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" if top => {
                self.scope().items.extend(next);
            }
            "impl" if top => self.inherent(tokens, at),
            _ => {}
        }
        if at > 1 && is_punct(tokens.get(at - 1), ':') && is_punct(tokens.get(at - 2), ':') {
            return at + 1;
        }
        let mut segments = vec![word_text];
        let mut end = at + 1;
        while is_joint(tokens, end) {
            let Some(name) = ident(tokens.get(end + 2)) else { break };
            segments.push(name);
            end += 3;
        }
        if segments.len() > 1 {
            self.scope().named.push(Named { segments, known_as: None, line: word.span().start().line });
        }
        end
    }

    /// Notes the type of an `impl` that is not of a trait.
    fn inherent(&mut self, tokens: &[TokenTree], at: usize) {
        let mut depth = 0_i32;
        let mut first = None;
        for i in at + 1..tokens.len() {
            match &tokens[i] {
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => break,
                TokenTree::Ident(word) if word == "for" && depth == 0 => return,
                TokenTree::Ident(word) if word == "where" && depth == 0 => break,
                TokenTree::Ident(_) if depth == 0 && first.is_none() => first = Some(i),
                TokenTree::Punct(p) if p.as_char() == '<' => depth += 1,
                TokenTree::Punct(p) if p.as_char() == '>' && !is_punct(tokens.get(i - 1), '-') => depth -= 1,
                _ => {}
            }
        }
        let Some(first) = first else { return };
        let line = tokens[first].span().start().line;
        let mut segments = vec![tokens[first].to_string()];
        let mut end = first + 1;
        while is_joint(tokens, end) {
            let Some(name) = ident(tokens.get(end + 2)) else { break };
            segments.push(name);
            end += 3;
        }
        self.scope().impls.push(Named { segments, known_as: None, line });
    }
}

/// The leaves of a tree of imports.
fn leaves(tokens: &[TokenTree], before: &[String], line: usize, out: &mut Vec<Named>) {
    let mut segments = before.to_vec();
    let mut known_as = None;
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "as" => {
                known_as = ident(tokens.get(at + 1));
                at += 1;
            }
            TokenTree::Ident(word) => segments.push(word.to_string()),
            TokenTree::Punct(p) if p.as_char() == '*' => segments.push("*".to_owned()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|t| is_punct(Some(t), ',')).filter(|p| !p.is_empty()) {
                    leaves(part, &segments, line, out);
                }
                return;
            }
            _ => {}
        }
        at += 1;
    }
    if segments.len() > 1 && segments.last().is_some_and(|s| s == "self") {
        segments.pop();
    }
    let known_as = known_as.or_else(|| segments.last().cloned());
    out.push(Named { segments, known_as, line });
}

/// Names of functions behind `#[test]`, at any depth, and of those that a macro makes tests of.
fn tests(tokens: &[TokenTree], out: &mut Vec<String>) {
    let mut marked = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "fn" && marked => {
                out.extend(ident(tokens.get(at + 1)));
                marked = false;
            }
            TokenTree::Group(group) => {
                if attribute(tokens, at.wrapping_sub(1)).is_some() {
                    marked |= group.stream().to_string() == "test";
                    continue;
                }
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                if ident(tokens.get(at.wrapping_sub(2))).is_some_and(|m| MAKE_TESTS.contains(&m.as_str())) {
                    out.extend(inner.iter().filter_map(|t| ident(Some(t))));
                }
                tests(&inner, out);
            }
            _ => {}
        }
    }
}

/// The name of a module in a file of its own that is declared here, perhaps behind its visibility.
fn file_module(tokens: &[TokenTree], mut at: usize) -> Option<String> {
    if ident(tokens.get(at)).is_some_and(|w| w == "pub") {
        at += 1;
        if matches!(tokens.get(at), Some(TokenTree::Group(_))) {
            at += 1;
        }
    }
    let declares = ident(tokens.get(at)).is_some_and(|w| w == "mod") && is_punct(tokens.get(at + 2), ';');
    declares.then(|| ident(tokens.get(at + 1))).flatten()
}

/// Behind the item, statement, field or arm that begins here.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let import = (at..tokens.len().min(at + 3)).any(|i| ident(tokens.get(i)).is_some_and(|w| w == "use"));
    let mut depth = 0_i32;
    for i in at..tokens.len() {
        match &tokens[i] {
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace && !import => return i + 1,
            TokenTree::Punct(p) => match p.as_char() {
                ';' => return i + 1,
                ',' if depth == 0 => return i + 1,
                '<' => depth += 1,
                '>' if !is_punct(tokens.get(i.wrapping_sub(1)), '-') => depth -= 1,
                _ => {}
            },
            _ => {}
        }
    }
    tokens.len()
}

/// The group of an attribute that begins here.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    if !is_punct(tokens.get(at), '#') {
        return None;
    }
    let behind = if is_punct(tokens.get(at + 1), '!') { at + 2 } else { at + 1 };
    match tokens.get(behind) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => Some(group),
        _ => None,
    }
}

/// Whether an attribute leaves out what follows from every build but those of tests, models and fuzzing.
fn is_only_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(word), TokenTree::Group(condition)] = tokens.as_slice() else { return false };
    word == "cfg" && holds(&condition.stream().into_iter().collect::<Vec<_>>()) == Some(false)
}

/// Whether a condition holds in what is shipped, `None` if that depends on the machine or a feature.
fn holds(tokens: &[TokenTree]) -> Option<bool> {
    let text: String = tokens.iter().map(ToString::to_string).collect();
    match tokens {
        [TokenTree::Ident(word), TokenTree::Group(group)] => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let mut parts = inner.split(|t| is_punct(Some(t), ',')).filter(|p| !p.is_empty()).map(holds);
            match word.to_string().as_str() {
                "not" => parts.next().flatten().map(|h| !h),
                "any" => parts.try_fold(false, |any, h| h.map(|h| any || h)),
                "all" if parts.any(|h| h == Some(false)) => Some(false),
                _ => None,
            }
        }
        _ if matches!(text.as_str(), "test" | "loom" | "shuttle" | "fuzzing" | "feature=\"sim\"") => {
            Some(false)
        }
        _ => None,
    }
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == sign)
}

/// Whether `::` stands here.
fn is_joint(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}
