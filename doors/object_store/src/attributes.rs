//! What hangs on an object besides its content: extended attributes of its file, set before it has a name.

use crate::error::generic;
use narufs::{File, Metadata, XattrMode};
use object_store::path::Path;
use object_store::{Attribute, AttributeValue, Attributes, Error, ObjectMeta, Result};
use std::time::UNIX_EPOCH;

/// Before the names of all.
const OURS: &str = "user.object.";

/// Before the names of what users define.
const META: &str = "user.object.meta.";

fn name_of(attribute: &Attribute) -> Option<String> {
    let name = match attribute {
        Attribute::ContentDisposition => "content-disposition",
        Attribute::ContentEncoding => "content-encoding",
        Attribute::ContentLanguage => "content-language",
        Attribute::ContentType => "content-type",
        Attribute::CacheControl => "cache-control",
        Attribute::StorageClass => "storage-class",
        Attribute::Metadata(key) => return Some(format!("{META}{key}")),
        _ => return None,
    };
    Some(format!("{OURS}{name}"))
}

fn of_name(name: &str) -> Option<Attribute> {
    if let Some(key) = name.strip_prefix(META) {
        return Some(Attribute::Metadata(key.to_owned().into()));
    }
    match name.strip_prefix(OURS)? {
        "content-disposition" => Some(Attribute::ContentDisposition),
        "content-encoding" => Some(Attribute::ContentEncoding),
        "content-language" => Some(Attribute::ContentLanguage),
        "content-type" => Some(Attribute::ContentType),
        "cache-control" => Some(Attribute::CacheControl),
        "storage-class" => Some(Attribute::StorageClass),
        _ => None,
    }
}

/// Gives a file that has no name yet its attributes.
///
/// # Errors
/// Those of extended attributes: what is too long, or too many; an attribute that this store does not know.
pub(crate) fn set(file: &File, attributes: &Attributes) -> Result<()> {
    for (attribute, value) in attributes {
        let unknown = || Error::NotImplemented {
            operation: format!("the attribute {attribute:?}"),
            implementer: crate::error::STORE.into(),
        };
        let name = name_of(attribute).ok_or_else(unknown)?;
        // Names of attributes are listed with one behind each.
        if name.contains('\0') {
            return Err(generic(format!("the attribute {attribute:?}: its key has a zero byte")));
        }
        file.set_xattr(name, value.as_bytes(), XattrMode::Any).map_err(generic)?;
    }
    Ok(())
}

/// The attributes of an object.
///
/// # Errors
/// What narufs says.
pub(crate) fn of(file: &File) -> narufs::Result<Attributes> {
    let mut attributes = Attributes::new();
    for name in file.xattrs()? {
        let Some(attribute) = name.to_str().and_then(of_name) else { continue };
        let value = String::from_utf8_lossy(&file.xattr(&name)?).into_owned();
        attributes.insert(attribute, AttributeValue::from(value));
    }
    Ok(attributes)
}

/// What no two objects have at any time: the number of the inode, which with its generation comes once in an image, and
/// the time of its content, which tells images apart. Copies have it in common.
pub(crate) fn e_tag(metadata: &Metadata) -> String {
    let since = metadata.modified().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{:x}-{:x}-{since:x}", metadata.ino(), metadata.generation())
}

/// What a list says of an object.
pub(crate) fn meta(location: Path, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: metadata.modified().into(),
        size: metadata.len(),
        e_tag: Some(e_tag(metadata)),
        version: None,
    }
}
