/* narufs as an external engine of fio: files of a file system that runs inside fio's process, without a mount.
 *
 *     [global]
 *     ioengine=external:/path/to/narufs-fio.so
 *     thread=1
 *     image=/var/tmp/fio.img     ; or: scratch=1G
 *     image_size=4G              ; makes the file system anew, once in a run
 *
 * Jobs are threads (thread=1): all of a process share one file system. Reads, writes, fsync, fdatasync, verify. What is
 * asked for with iodepth=N beyond 1 is deferred durability: up to N syncs, and with sync=1 up to N writes that are to be
 * durable, are under way at once, and none holds a thread. Everything else is over when its call is.
 */
#include "fio.h"
#include "optgroup.h"

#include <narufs.h>
#include <pthread.h>

struct narufs_options {
	void *pad;
	char *image;
	unsigned long long image_size;
	unsigned long long scratch;
};

static struct fio_option options[] = {
	{
		.name = "image",
		.lname = "image of the file system",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct narufs_options, image),
		.help = "file or device with a file system of narufs",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "image_size",
		.lname = "size of a new image",
		.type = FIO_OPT_STR_VAL,
		.off1 = offsetof(struct narufs_options, image_size),
		.help = "make the file system anew, with so many bytes; what was there is lost",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "scratch",
		.lname = "bytes of scratch space",
		.type = FIO_OPT_STR_VAL,
		.off1 = offsetof(struct narufs_options, scratch),
		.help = "a file system in so many bytes of memory, in the place of an image",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

/* The file system of the process, open as long as a job uses it. */
static struct narufs_dir *fs;
static unsigned int users;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define FLAGS (FIO_DISKLESSIO | FIO_NODISKUTIL)

/* What a job has under way. */
struct job {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int done;
	struct io_u **completed;
	struct io_u **events;
};

static int fail(const char *what)
{
	log_err("narufs: %s: %s\n", what, narufs_error_message());
	return 1;
}

/* Images that were made here: each once, for jobs that come later (stonewall) want what those before have written. */
static struct made {
	struct made *next;
	char image[];
} *made;

static int make_once(struct narufs_options *o)
{
	struct narufs_format_options format = NARUFS_FORMAT_OPTIONS_INIT;
	size_t len = strlen(o->image) + 1;
	struct made *one;

	for (one = made; one; one = one->next)
		if (!strcmp(one->image, o->image))
			return 0;
	format.bytes = o->image_size;
	format.force = 1;
	if (narufs_format(o->image, &format))
		return fail("format");
	one = malloc(sizeof(*one) + len);
	if (!one)
		return 1;
	memcpy(one->image, o->image, len);
	one->next = made;
	made = one;
	return 0;
}

static int mount_once(struct narufs_options *o)
{
	struct narufs_scratch_options scratch = NARUFS_SCRATCH_OPTIONS_INIT;

	if (fs)
		return 0;
	if (o->scratch) {
		scratch.memory = o->scratch;
		fs = narufs_scratch(&scratch);
		return fs ? 0 : fail("scratch space");
	}
	if (!o->image) {
		log_err("narufs: say where: image=PATH (image_size=BYTES makes it), or scratch=BYTES\n");
		return 1;
	}
	if (o->image_size && make_once(o))
		return 1;
	fs = narufs_mount(o->image, NULL);
	return fs ? 0 : fail("mount");
}

static int engine_init(struct thread_data *td)
{
	extern const char fio_version_string[];
	struct job *job;
	int failed;

	/* The layout of what fio hands over changes from version to version. */
	if (strcmp(fio_version_string, BUILT_FOR)) {
		log_err("narufs: this engine was built for %s and not for %s: build it anew with `make fio`\n", BUILT_FOR,
			fio_version_string);
		return 1;
	}
	if (!td->o.use_thread) {
		log_err("narufs: jobs must be threads, for they share one file system: add thread=1\n");
		return 1;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return 1;
	pthread_mutex_init(&job->lock, NULL);
	pthread_cond_init(&job->changed, NULL);
	job->completed = calloc(td->o.iodepth, sizeof(*job->completed));
	job->events = calloc(td->o.iodepth, sizeof(*job->events));
	td->io_ops_data = job;

	pthread_mutex_lock(&lock);
	failed = mount_once(td->eo);
	if (!failed)
		users++;
	/* Of this job, whatever others have: when fio looks at the clock. */
	td->io_ops->flags = FLAGS | (td->o.iodepth == 1 ? FIO_SYNCIO : FIO_ASYNCIO_SETS_ISSUE_TIME);
	td_set_ioengine_flags(td);
	pthread_mutex_unlock(&lock);
	if (failed || !job->completed || !job->events) {
		free(job->completed);
		free(job->events);
		free(job);
		td->io_ops_data = NULL;
		return 1;
	}
	return 0;
}

static void engine_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	free(job->completed);
	free(job->events);
	free(job);
	td->io_ops_data = NULL;
	pthread_mutex_lock(&lock);
	if (--users == 0) {
		if (narufs_unmount(fs))
			fail("unmount");
		fs = NULL;
	}
	pthread_mutex_unlock(&lock);
}

/* Called by a thread of the library, or by the job's own. */
static void tell(void *arg, int error)
{
	struct io_u *io_u = arg;
	struct job *job = io_u->engine_data;

	io_u->error = error;
	pthread_mutex_lock(&job->lock);
	job->completed[job->done++] = io_u;
	pthread_cond_signal(&job->changed);
	pthread_mutex_unlock(&job->lock);
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct narufs_file *file = FILE_ENG_DATA(io_u->file);
	struct job *job = td->io_ops_data;
	int is_deferred = td->o.iodepth > 1;
	int is_sync = io_u->ddir == DDIR_SYNC || io_u->ddir == DDIR_DATASYNC;
	ssize_t moved = 0;

	fio_ro_check(td, io_u);
	io_u->engine_data = job;
	if (is_deferred && fio_fill_issue_time(td)) {
		fio_gettime(&io_u->issue_time, NULL);
		io_u_queued(td, io_u);
	}
	if (io_u->ddir == DDIR_READ)
		moved = narufs_pread(file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset);
	else if (io_u->ddir == DDIR_WRITE)
		moved = narufs_pwrite(file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset);
	else if (!is_sync) {
		io_u->error = EOPNOTSUPP;
		return FIO_Q_COMPLETED;
	}
	if (moved < 0) {
		io_u->error = errno;
		td_verror(td, io_u->error, narufs_error_message());
		return FIO_Q_COMPLETED;
	}
	if (!is_sync)
		io_u->resid = io_u->xfer_buflen - moved;

	/* Without a queue, sync=1 has opened the file so that the write is durable by now. */
	if (is_deferred && (is_sync || (io_u->ddir == DDIR_WRITE && td->o.sync_io))) {
		if (narufs_fsync_then(file, io_u->ddir == DDIR_DATASYNC, tell, io_u) == 0)
			return FIO_Q_QUEUED;
		io_u->error = errno;
	} else if (is_sync &&
		   (io_u->ddir == DDIR_SYNC ? narufs_fsync(file) : narufs_fdatasync(file)))
		io_u->error = errno;
	if (io_u->error)
		td_verror(td, io_u->error, narufs_error_message());
	return FIO_Q_COMPLETED;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	unsigned int n, given;

	pthread_mutex_lock(&job->lock);
	while (job->done < min)
		pthread_cond_wait(&job->changed, &job->lock);
	given = job->done < max ? job->done : max;
	for (n = 0; n < given; n++)
		job->events[n] = job->completed[n];
	job->done -= given;
	memmove(job->completed, job->completed + given, job->done * sizeof(*job->completed));
	pthread_mutex_unlock(&job->lock);
	return given;
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;

	return job->events[event];
}

/* fio must know how large files are before it can look at them. */
static int engine_setup(struct thread_data *td)
{
	struct fio_file *f;
	unsigned int n;

	for_each_file(td, f, n) {
		if (!f->real_file_size || f->real_file_size == -1ULL)
			f->real_file_size = td->o.file_size_low ? td->o.file_size_low : td->o.size / td->o.nr_files;
		fio_file_set_size_known(f);
	}
	return 0;
}

/* What is to be read is there, and is no hole. */
static int fill(struct narufs_file *file, uint64_t size)
{
	static const char zeros[1 << 20];
	struct narufs_stat stat;
	uint64_t at;

	if (narufs_fstat(file, &stat))
		return -1;
	for (at = stat.size; at < size;) {
		uint64_t len = size - at < sizeof(zeros) ? size - at : sizeof(zeros);
		ssize_t written = narufs_pwrite(file, zeros, len, at);

		if (written <= 0)
			return -1;
		at += written;
	}
	return 0;
}

static int engine_open(struct thread_data *td, struct fio_file *f)
{
	int flags = O_RDWR | O_CREAT;
	struct narufs_file *file;

	if (td->o.odirect)
		flags |= O_DIRECT;
	if (td->o.sync_io && td->o.iodepth == 1)
		flags |= td->o.sync_io;
	file = narufs_open(fs, f->file_name, flags, 0644);
	if (!file && errno == ENOENT) {
		char *directory = strdup(f->file_name), *slash = directory ? strrchr(directory, '/') : NULL;

		if (slash) {
			*slash = 0;
			narufs_mkdir_all(fs, directory);
			file = narufs_open(fs, f->file_name, flags, 0644);
		}
		free(directory);
	}
	if (!file || (td_read(td) && fill(file, f->real_file_size))) {
		td_verror(td, errno, narufs_error_message());
		if (file)
			narufs_close(file);
		return 1;
	}
	FILE_SET_ENG_DATA(f, file);
	return 0;
}

static int engine_close(struct thread_data *td, struct fio_file *f)
{
	struct narufs_file *file = FILE_ENG_DATA(f);

	FILE_SET_ENG_DATA(f, NULL);
	return file && narufs_close(file) ? errno : 0;
}

static int engine_unlink(struct thread_data *td, struct fio_file *f)
{
	return narufs_unlink(fs, f->file_name) ? errno : 0;
}

static int engine_invalidate(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "narufs",
	.version = FIO_IOOPS_VERSION,
	.flags = FLAGS,
	.setup = engine_setup,
	.init = engine_init,
	.cleanup = engine_cleanup,
	.queue = engine_queue,
	.getevents = engine_getevents,
	.event = engine_event,
	.open_file = engine_open,
	.close_file = engine_close,
	.unlink_file = engine_unlink,
	.invalidate = engine_invalidate,
	.options = options,
	.option_struct_size = sizeof(struct narufs_options),
};
