//! Where calls run that may wait, and how an answer waits for the device without a thread.

use crate::error::generic;
use crate::mount::Mount;
use object_store::Result;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Runs what may wait for locks or for the device: on a thread of the runtime's that may, or where there is none on this
/// one, as the crate's own `LocalFileSystem` does. What nobody waits for any more is not begun, and gives and takes no
/// name: who has given a call up, and makes another, is not overtaken by the first.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else { return call() };
    let is_given_up = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_given_up);
    let task = runtime.spawn_blocking(move || {
        let _told = Told::with(told);
        call()
    });
    let _waits = Waits { is_given_up, task: task.abort_handle() };
    task.await.map_err(generic)?
}

/// Somebody waits for a call; once that is over, the call is of no use.
struct Waits {
    is_given_up: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Waits {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `check_wanted`. Who makes another call about the same name has its lock after
        // this, and the first looks when it has it.
        self.is_given_up.store(true, Ordering::Release);
        self.task.abort();
    }
}

thread_local! {
    /// Whether the call that this thread runs has been given up.
    static GIVEN_UP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// While it lives, this thread runs a call that may be given up.
struct Told;

impl Told {
    fn with(is_given_up: Arc<AtomicBool>) -> Told {
        GIVEN_UP.set(Some(is_given_up));
        Told
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        GIVEN_UP.set(None);
    }
}

/// To be asked with the lock of a name, before it is given or taken.
///
/// # Errors
/// Nobody waits for this call any more.
pub(crate) fn check_wanted() -> Result<()> {
    let is_given_up =
        GIVEN_UP.with_borrow(|told| told.as_ref().is_some_and(|told| told.load(Ordering::Acquire)));
    if is_given_up { Err(generic("nobody waits for it any more: nothing was changed")) } else { Ok(()) }
}

/// What is not durable yet; many wait for one flush, and none of them has a thread.
pub(crate) struct Promise(Option<oneshot::Receiver<narufs::Result<()>>>);

impl Promise {
    /// Of what has nothing to be made durable.
    pub(crate) fn kept() -> Promise {
        Promise(None)
    }

    /// Of what the call makes durable, and tells when it is.
    pub(crate) fn of(sync: impl FnOnce(Box<dyn FnOnce(narufs::Result<()>) + Send>)) -> Promise {
        let (tell, told) = oneshot::channel();
        // Whoever does not wait any more is not told.
        sync(Box::new(move |outcome| drop(tell.send(outcome))));
        Promise(Some(told))
    }

    /// Returns when it is durable.
    ///
    /// # Errors
    /// Those of the device: it may be there, or not, after a crash.
    pub(crate) async fn wait(self) -> Result<()> {
        let Some(told) = self.0 else { return Ok(()) };
        told.await.map_err(generic)?.map_err(generic)
    }
}

/// Whether memory has lately had what calls took. As long as it has, they are made where they are asked for; after one that
/// has slept, the next ones are made elsewhere.
pub(crate) struct Memory {
    /// Calls that are still to be made elsewhere.
    elsewhere: AtomicU32,
    /// How many are, after one that was about to sleep.
    after_sleep: u32,
}

impl Memory {
    pub(crate) fn new(after_sleep: u32) -> Memory {
        Memory { elsewhere: AtomicU32::new(0), after_sleep }
    }

    pub(crate) fn is_enough(&self) -> bool {
        // Relaxed: nothing hangs on it but where a call is made.
        let less = |left: u32| left.checked_sub(1);
        self.elsewhere.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    pub(crate) fn was_not_enough(&self) {
        self.elsewhere.store(self.after_sleep, Ordering::Relaxed);
    }
}

/// Makes a call on this thread; others that come are made elsewhere from the moment at which it is about to sleep.
pub(crate) fn here<T>(mount: &Arc<Mount>, memory: fn(&Mount) -> &Memory, call: impl FnOnce() -> T) -> T {
    let told = Arc::clone(mount);
    narufs::before_sleep(call, move || memory(&told).was_not_enough())
}

/// Runs what changes something, and waits until that is durable: on this thread as long as it has been a matter of memory,
/// for whom a hand-over to another and back costs as much as the call.
pub(crate) async fn durable_here<T>(
    mount: &Arc<Mount>,
    call: impl FnOnce() -> Result<(T, Promise)>,
) -> Result<T> {
    // Of many calls in one task the others of the thread get their turns.
    tokio::task::coop::consume_budget().await;
    let (done, promise) = here(mount, |mount| &mount.room, call)?;
    promise.wait().await?;
    Ok(done)
}

/// Runs what changes something, and waits until that is durable.
pub(crate) async fn durable<T: Send + 'static>(
    call: impl FnOnce() -> Result<(T, Promise)> + Send + 'static,
) -> Result<T> {
    let (done, promise) = blocking(call).await?;
    promise.wait().await?;
    Ok(done)
}

/// The errors of many from one that they share.
pub(crate) fn shared(error: &Arc<object_store::Error>) -> object_store::Error {
    generic(Arc::clone(error))
}
