from wse_core.records cimport form_t, forms_t

cdef enum:
    MOST_FORMS = 0x40000    # that a fabric has room for
    FORM_HASHES = 0x1000

cdef const form_t* form_kept(forms_t* forms, const form_t* f) noexcept nogil
