//! One step of a history on the reference model: does what was answered follow from the state?

use super::{Answer, At, Call, Event, Exclusive, Id};
use crate::model::{Model, Outcome};
use crate::op::Op;

/// What all names look like: directory, name, what it leads to.
pub type Names = Vec<(Id, String, Id)>;

/// The state that calls find.
#[derive(Debug, Clone, Default)]
pub struct State(Model);

impl State {
    /// Every name, in order: two states with the same names are the same.
    pub fn names(&self) -> Names {
        self.0.names().map(|(dir, name, to)| (dir, name.into(), to)).collect()
    }

    /// Number of names and type of what has a name.
    pub fn seen(&self, id: Id) -> Option<(u32, u32)> {
        self.0.path_of(id).map(|_| (self.0.links(id), self.0.kind(id)))
    }

    /// The state after a call that was answered as it was; none if it cannot have been answered so here.
    pub fn after(&self, event: &Event) -> Option<State> {
        let mut model = self.0.clone();
        if let Ok(Answer::Is(id, _)) = event.answer
            && makes(event.call)
        {
            model.next_is(id);
        }
        (answer(&mut model, event) == event.answer).then_some(State(model))
    }
}

/// Whether something new may come of it.
fn makes(call: Call) -> bool {
    matches!(call, Call::Create(..) | Call::Mkdir(_) | Call::Symlink(_) | Call::Link(..))
}

/// Does the call on the model.
fn answer(model: &mut Model, event: &Event) -> Result<Answer, i32> {
    match event.call {
        Call::Create(at, exclusive) => {
            let path = path(model, at)?;
            let made =
                model.apply(&Op::Create { path: path.clone(), exclusive: exclusive == Exclusive::Yes });
            is(model, &path, made)
        }
        Call::Mkdir(at) => {
            let path = path(model, at)?;
            let made = model.apply(&Op::Mkdir { path: path.clone() });
            is(model, &path, made)
        }
        Call::Symlink(at) => {
            let path = path(model, at)?;
            let made = symlink(model, &path);
            is(model, &path, made)
        }
        Call::Link(source, _, at) => {
            let to = path(model, at)?;
            let made = match model.path_of(source) {
                Some(from) => model.apply(&Op::Link { from, to: to.clone() }),
                // What lost its last name gets none again; what the new name says comes first.
                None => match model.clone().apply(&Op::Create { path: to.clone(), exclusive: true }) {
                    Ok(_) => Err(libc::ENOENT),
                    made => made,
                },
            };
            is(model, &to, made)
        }
        Call::Unlink(at) => {
            let path = path(model, at)?;
            model.apply(&Op::Unlink { path }).map(|_| Answer::Done)
        }
        Call::Rmdir(at) => {
            let path = path(model, at)?;
            model.apply(&Op::Rmdir { path }).map(|_| Answer::Done)
        }
        Call::Rename(from, to, flags) => {
            let (from, to) = (path(model, from)?, path(model, to)?);
            model.apply(&Op::Rename { from, to, flags }).map(|_| Answer::Done)
        }
        Call::Lookup(at) | Call::Open(at) | Call::Find(at) => {
            let path = path(model, at)?;
            let id = model.identity(&path).ok_or(libc::ENOENT)?;
            Ok(Answer::Is(id, model.kind(id)))
        }
        // Nobody asks for what was never there: without a name it was removed.
        Call::Stat(id) => match (model.path_of(id), event.answer) {
            (Some(_), _) => Ok(Answer::Has(model.links(id), model.kind(id))),
            (None, Ok(Answer::Has(_, file_type))) => Ok(Answer::Has(0, file_type)),
            (None, _) => Err(libc::ENOENT),
        },
    }
}

/// The path of a name; none in a directory that is removed.
fn path(model: &Model, at: At) -> Result<String, i32> {
    let dir = model.path_of(at.dir).ok_or(libc::ENOENT)?;
    Ok(format!("{}/{}", dir.trim_end_matches('/'), at.name))
}

fn symlink(model: &mut Model, path: &str) -> Outcome {
    model.apply(&Op::Symlink { target: "nowhere".into(), path: path.into() })
}

fn is(model: &Model, path: &str, made: Outcome) -> Result<Answer, i32> {
    made?;
    let id = model.identity(path).ok_or(libc::EIO)?;
    Ok(Answer::Is(id, model.kind(id)))
}
